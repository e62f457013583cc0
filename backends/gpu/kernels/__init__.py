"""Kernels' sources: one file per family. Only what compiles kernels imports these."""
