"""NumPy executions of the ops in schema/ops/signal.py."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import float_type
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import signal as ops
from mnnx.schema.ops.base import specs_of


def _complex(x):
    """(…, 1 or 2) → a real or complex array of (…)."""
    x = x.astype(float_type(x))
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _parts(x, dtype):
    """A complex array of (…) → (…, 2)."""
    return np.stack([x.real, x.imag], -1).astype(dtype)


@numpy_execution(ops.DFT)
def dft(op, x, dft_length=None, axis=None):
    axis, length = op.transform(*specs_of(x, dft_length, axis))
    values = _complex(x)
    if op.onesided and op.inverse:
        return np.fft.irfft(values, length, axis)[..., None].astype(x.dtype)
    transform = np.fft.ifft if op.inverse else np.fft.rfft if op.onesided else np.fft.fft
    return _parts(transform(values, length, axis), x.dtype)


@numpy_execution(ops.STFT)
def stft(op, signal, frame_step, window=None, frame_length=None):
    _, step, length = op.frames(*specs_of(signal, frame_step, window, frame_length))
    frames = np.lib.stride_tricks.sliding_window_view(_complex(signal), length, 1)[:, ::step]
    if window is not None:
        frames = frames * window.astype(frames.real.dtype)
    if op.onesided and signal.shape[-1] == 1:
        return _parts(np.fft.rfft(frames), signal.dtype)
    frequencies = np.fft.fft(frames)
    return _parts(frequencies[..., : length // 2 + 1] if op.onesided else frequencies, signal.dtype)
