"""Kernels' sources: one file per family. A file is imported when one of its kernels is first recorded."""
