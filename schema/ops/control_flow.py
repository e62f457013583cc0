"""If, Loop and Scan. Their graphs are closed: what an ONNX subgraph captures comes in as further inputs of the op, and of the graphs."""

import numpy as np

from mnnx.schema.ops.base import Op, Subgraph, op, require


@op("If")
class If(Op):
    """Runs one of two graphs. Inputs: condition, *captures; both graphs take the captures. ONNX If-25."""

    then_branch: Subgraph
    else_branch: Subgraph

    @property
    def own_inputs(self) -> int:
        """How many inputs stand before the captures."""
        return 1


@op("Loop")
class Loop(Op):
    """Runs `body` while its condition holds, at most `trip count` times. ONNX Loop-25.

    Inputs: trip count (or none), condition (or none), *`states` initial states, *captures. The body takes iteration, condition,
    *states, *captures, and gives condition, *states, *values to stack along a new first axis. Outputs: final states, stacked values.
    """

    body: Subgraph
    states: int

    @property
    def own_inputs(self) -> int:
        """How many inputs stand before the captures."""
        return 2 + self.states

    def check(self) -> None:
        require(self.states >= 0, f"the number of states must not be negative, got {self.states}")


@op("Scan")
class Scan(Op):
    """Runs `body` over slices of its scan inputs. ONNX Scan-25.

    Inputs: *`states` initial states, *`scans` scan inputs, *captures; the body takes the same with one slice of each scan input, and
    gives *states, *slices of the scan outputs. Axes count from the back where negative; direction 1 runs backward. `batched` is Scan-8's
    form: a first input with sequence lengths (or none), and a leading batch axis on states and scan inputs and outputs.
    """

    body: Subgraph
    states: int
    scans: int
    input_axes: tuple[int, ...] = ()
    input_directions: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    output_directions: tuple[int, ...] = ()
    batched: bool = False

    @property
    def own_inputs(self) -> int:
        """How many inputs stand before the captures."""
        return self.states + self.scans + self.batched

    def check(self) -> None:
        require(self.states >= 0 and self.scans >= 1, f"needs a scan input and no negative counts, got {self.states}, {self.scans}")
        for name in ("input_axes", "input_directions"):
            require(len(getattr(self, name)) in (0, self.scans), f"{name} must have one entry per scan input ({self.scans})")
        for name in ("input_directions", "output_directions"):
            require(set(getattr(self, name)) <= {0, 1}, f"{name} must be 0 (forward) or 1 (backward)")


def truth(value: np.ndarray, what: str) -> bool:
    """A condition's value; `what` names it in the error where it isn't one element."""
    require(isinstance(value, np.ndarray) and value.size == 1, f"the {what} must be one element")
    return bool(value.reshape(-1)[0])
