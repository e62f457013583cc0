"""The kernel bundles of a wheel (see kernel_bundles.py). `make wheel` makes them; a source checkout has none."""
