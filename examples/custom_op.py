"""An operator of one's own: a running median, as an ONNX model of some framework may contain it under the domain com.example.

    python examples/custom_op.py

A module like this one registers three things when it is imported: what the op is, how ONNX says it, and how it is computed. Whoever
converts or runs a model with the op imports it before; or it is part of an installed package that names it in its pyproject.toml:

    [project.entry-points."mnnx.ops"]
    median = "my_package.median"

Then mnnx loads it where a model asks for it. (There is no `from __future__ import annotations` here: mnnx reads the annotations.)
"""

import tempfile
from pathlib import Path

import numba
import numpy as np

import mnnx
from mnnx import Op, Spec, importer, numpy_execution, op, require


@op("com.example::RunningMedian")
class RunningMedian(Op):
    """The median of each `width` neighbours along the last axis: float32 [..., n] → float32 [..., n - width + 1]."""

    width: int = 3

    def check(self):
        require(self.width % 2 == 1, f"width must be odd, it is {self.width}")

    def infer(self, *inputs):
        require(len(inputs) == 1 and inputs[0].dtype == np.float32, f"RunningMedian takes one float32 tensor, not {inputs}")
        *rows, count = inputs[0].shape
        require(count >= self.width, f"the last dim must have at least {self.width} elements; the input is {inputs[0]}")
        return Spec(inputs[0].dtype, (*rows, count - self.width + 1))


@importer("RunningMedian", domain="com.example")
def import_running_median(node, x):
    """`node` is the ONNX node; its attribute is called "window"."""
    return RunningMedian(width=node.attribute("window", int, 3))


@numpy_execution(RunningMedian)
def run(op, x):
    """Gets the op and an array for each input, and gives an array; plain NumPy would do as well."""
    rows = np.ascontiguousarray(x.reshape(-1, x.shape[-1]))
    return medians(rows, op.width).reshape(*x.shape[:-1], -1)


@numba.njit(cache=True)
def medians(rows, width):
    result = np.empty((rows.shape[0], rows.shape[1] - width + 1), np.float32)
    for row in range(result.shape[0]):
        for first in range(result.shape[1]):
            result[row, first] = np.median(rows[row, first : first + width])
    return result


MODEL = """
<ir_version: 8, opset_import: ["": 17, "com.example": 1]>
smooth (float[N, 9] signal) => (float[N, M] loud)
{
    smoothed = com.example.RunningMedian <window = 5> (signal)
    loud = Relu(smoothed)
}
"""


def main() -> None:
    import onnx.parser

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "smooth.mnnx"
        print(mnnx.convert(onnx.parser.parse_model(MODEL), path))
        session = mnnx.Interpreter.from_file(path).create_session()
        signal = np.float32([[1, 2, 90, 3, 4, -5, 6, 7, 8]])
        print(signal, "→", session.run({"signal": signal})["loud"])


if __name__ == "__main__":
    main()
