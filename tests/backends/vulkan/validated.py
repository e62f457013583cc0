"""Work on Vulkan under the validation layers, in a process of its own: python -m tests.backends.vulkan.validated SCENARIO.

Prints what the layers had to say, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

import mnnx
from tests.devices import halves
from tests.networks import feed_for, mobilenet_like, resnet_like, transformer_like

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
main (float[n, 3, h, w] x) => (float[n, m, h, w] y, float[n, p, q, r] z, bool[n, s, t, u] b)
<int64[1] one = {1}, int64[1] five = {5}, int64[1] axis = {3}>
{
    doubled = Add(x, x)
    bent = Tanh(doubled)
    last = Transpose<perm = [0, 2, 3, 1]>(bent)
    gate = Sigmoid(last)
    both = Concat<axis = 3>(gate, last)
    kept = Relu(both)
    product = Mul(kept, both)
    y = Slice(product, one, five, axis)
    z = Exp(product)
    b = Greater(z, product)
}
"""


@contextmanager
def _interpreter(model: onnx.ModelProto | str) -> Iterator[mnnx.Interpreter]:
    proto = onnx.parser.parse_model(model) if isinstance(model, str) else model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mnnx")
        mnnx.convert(proto, path)
        with mnnx.Interpreter.from_file(path) as interpreter:
            yield interpreter


def _session(interpreter: mnnx.Interpreter, **config) -> mnnx.Session:
    return interpreter.create_session(mnnx.ScheduleConfig(backend="vulkan", **config))


def _x(*shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


def ops() -> None:
    """Elementwise ops and movement, over several shapes, in both precisions."""
    with _interpreter(MODEL) as interpreter:
        for precision in ("high", "low"):
            session = _session(interpreter, backend_config=halves(precision))
            for shape in ((1, 3, 5, 7), (2, 3, 40, 33), (1, 3, 5, 7), (1, 3, 1, 1)):
                session.run(_x(*shape))


def networks() -> None:
    """Small networks, whose convolutions have blocked tensors."""
    for model in (mobilenet_like(32, 0.25, 10), resnet_like(32, 8, 1, 10), transformer_like(layers=1)):
        with _interpreter(model) as interpreter:
            session, feed = _session(interpreter), feed_for(model, {"n": 1, "length": 9})
            for _ in range(3):
                session.run(feed)


def callbacks() -> None:
    """Ops one by one, with their tensors read in between."""
    with _interpreter(MODEL) as interpreter:
        session = _session(interpreter)
        session.run(_x(1, 3, 9, 9))
        session.run_with_callbacks(lambda tensors, info: None, lambda tensors, info: tensors[0].copy_to_host(), _x(1, 3, 9, 9))


def threads() -> None:
    """Several sessions at once, made and released."""
    with _interpreter(MODEL) as interpreter:

        def work() -> None:
            for _ in range(3):
                with _session(interpreter) as session:
                    for width in (4, 50, 4):
                        session.run(_x(1, 3, 8, width))

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def staging() -> None:
    """Memory that the host doesn't see."""
    from mnnx.backends.vulkan.device import open_device

    open_device("").mapped = False
    ops()


def without_barriers() -> None:
    """As if no dispatch had to wait for another."""
    from mnnx.backends.vulkan.hazards import Hazards

    Hazards.must_wait = lambda self, spans: False
    ops()


SCENARIOS: dict[str, Callable[[], None]] = {f.__name__: f for f in (ops, networks, callbacks, threads, staging, without_barriers)}


def main() -> None:
    os.environ["MNNX_VULKAN_VALIDATE"] = "1"
    SCENARIOS[sys.argv[1]]()
    from mnnx.backends.vulkan.device import messages

    sys.stdout.write(json.dumps(messages()))


if __name__ == "__main__":
    main()
