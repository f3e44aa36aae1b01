"""Gaussian processes on kernels of molecules."""
