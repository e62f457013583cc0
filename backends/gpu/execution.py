"""The base of executions, which say what they need that a device may lack."""

from __future__ import annotations

from collections.abc import Sequence

from mnnx.backends.backend import Execution, Specs
from mnnx.backends.gpu.kernel import Kernel


class GpuExecution(Execution):
    #: Constant inputs that no kernel is given as they are, so that they may be larger than an argument can be.
    packed_inputs: tuple[int, ...] = ()

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        """Those that it will ask for and that may not exist, where kernels are compiled ahead of time."""
        return ()

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        """Bytes of the largest piece that a kernel will be given beside the tensors: packed weights, or a part of the working memory."""
        return self.scratch_bytes(inputs, outputs)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        """Iterations that the loops of one work item make at most, beside those of constant length (`steps.nested`)."""
        return 0
