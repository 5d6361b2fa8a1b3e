"""Attention by our own kernels: the backend, the operator, and its kernels in C++ (cpu/) and Triton (gpu/)."""
