"""Attention by our own kernels: the backend, the operator, and kernels in C++ (cpu.py) and Triton (gpu/)."""
