"""mnnx: neural network inference on small machines."""

__version__ = "0.1.0"
