"""The GPUs' factory of executions."""

from mnnx.backends.backend import Creators

creator = Creators("mnnx.backends.gpu.executions")
find = creator.find
