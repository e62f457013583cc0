"""Repack: a tensor's bytes put into another layout. The planner makes it; it never stands in a model file (so it isn't under `@op`)."""

from mnnx.schema.ops.base import Op, Spec


class Repack(Op):
    """The same tensor in another layout: those of its input and output (`DeviceTensor.layout`) say which, 0 in one and not in the other.

    What it writes into the lanes past the last channel is 0.
    """

    name = "mnnx::Repack"

    def infer(self, x: Spec) -> Spec:
        return Spec(x.dtype, x.shape)
