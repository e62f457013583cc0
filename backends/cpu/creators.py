"""The CPU's factory of native executions."""

from mnnx.backends.backend import Creators

creator = Creators("mnnx.backends.cpu.executions")
find = creator.find
