"""Fourier transforms."""

from mnnx.schema.ops.axes import normalize_axis, require_scalar
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats


def _require_signal(spec: Spec, what: str) -> None:
    require_floats(**{what: spec})
    require(spec.rank >= 2 and spec.shape[-1] in (1, 2), f"the last dim of {what} must be 1 (real) or 2 (complex), not {spec}")


@op("DFT")
class DFT(Op):
    """Discrete Fourier transform of (…, 1: real or 2: complex) along `axis` (a scalar input, else -2): (…, 2). ONNX DFT-20.

    `dft_length` (a scalar, else the dim) cuts the signal off or pads it with 0. With `onesided`, a real signal gives its first
    length // 2 + 1 frequencies, and the inverse takes these and gives a real signal (…, 1), by default of 2 (dim - 1) samples.
    """

    inverse: bool = False
    onesided: bool = False

    def transform(self, x: Spec, dft_length: Spec | None, axis: Spec | None) -> tuple[int, int]:
        """(axis, length of the transform)."""
        if axis is not None:
            require_scalar(axis, "axis")
        at = normalize_axis(-2 if axis is None else axis.ints()[0], x.rank)
        require(at != x.rank - 1, "axis must not be the last dim")
        dim = x.shape[at]
        if dft_length is not None:
            require_scalar(dft_length, "dft_length")
            length = dft_length.ints()[0]
        else:
            length = 2 * (dim - 1) if self.inverse and self.onesided else dim
        require(0 < length < LIMIT and dim > 0, f"a transform of length {length} of a dim of {dim} isn't possible")
        return at, length

    def infer(self, x: Spec, dft_length: Spec | None = None, axis: Spec | None = None) -> Spec:
        _require_signal(x, "the input")
        at, length = self.transform(x, dft_length, axis)
        size, parts = length, 2
        if self.onesided and self.inverse:
            require(x.shape[-1] == 2, f"a onesided inverse transform needs a complex input, not {x}")
            parts = 1
        elif self.onesided:
            require(x.shape[-1] == 1, f"a onesided transform needs a real input, not {x}")
            size = length // 2 + 1
        return Spec(x.dtype, (*x.shape[:at], size, *x.shape[at + 1 : -1], parts))


@op("STFT")
class STFT(Op):
    """Fourier transforms of the frames of a signal (N, L, 1 or 2), `frame_step` apart: (N, frames, frequencies, 2). ONNX STFT-17.

    The frames, weighted with `window`, have its length, else `frame_length`, else that of the signal.
    """

    onesided: bool = True

    def frames(self, signal: Spec, frame_step: Spec, window: Spec | None, frame_length: Spec | None) -> tuple[int, int, int]:
        """(number of frames, step, length of a frame)."""
        require_scalar(frame_step, "frame_step")
        step, length = frame_step.ints()[0], signal.shape[1]
        if window is not None:
            require(window.rank == 1 and window.dtype == signal.dtype, f"window must be 1-D and of the dtype of {signal}, not {window}")
            length = window.shape[0]
        if frame_length is not None:
            require_scalar(frame_length, "frame_length")
            length = frame_length.ints()[0]
            require(window is None or window.shape == (length,), f"window must have frame_length {length} elements, not {window}")
        require(step > 0 and 0 < length <= signal.shape[1], f"frames of {length}, {step} apart, don't fit in {signal}")
        return (signal.shape[1] - length) // step + 1, step, length

    def infer(self, signal: Spec, frame_step: Spec, window: Spec | None = None, frame_length: Spec | None = None) -> Spec:
        _require_signal(signal, "signal")
        require(signal.rank == 3, f"signal must be (N, L, 1 or 2), not {signal}")
        count, _, length = self.frames(signal, frame_step, window, frame_length)
        return Spec(signal.dtype, (signal.shape[0], count, length // 2 + 1 if self.onesided else length, 2))
