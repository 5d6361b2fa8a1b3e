"""Attention by our own kernels: the backend, the operator, and its kernels in C++ (called by cpu.py) and Triton (gpu/)."""
