"""Rows of the ops in schema/ops/signal.py."""

import numpy as np

from mnnx.schema.ops.signal import DFT, STFT
from tests.cases import case, f32, f64

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}

for inverse in (False, True):
    case(DFT(inverse=inverse), f32(2, 10, 1), **TOLERANCE)
    case(DFT(inverse=inverse), f32(2, 9, 2), **TOLERANCE)
    case(DFT(inverse=inverse), f64(3, 8, 5, 2), None, np.array(1), **TOLERANCE)
    case(DFT(inverse=inverse), f32(2, 10, 2), np.array(6), **TOLERANCE)
    case(DFT(inverse=inverse), f32(2, 10, 1), np.array(16), np.array(-2), **TOLERANCE)
case(DFT(onesided=True), f32(2, 10, 1), **TOLERANCE)
case(DFT(onesided=True), f32(2, 9, 1), np.array(7), **TOLERANCE)
case(
    DFT(onesided=True, inverse=True),
    f32(2, 6, 2),
    reference=lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1])[..., None].astype(x.dtype),
    **TOLERANCE,
)
case(
    DFT(onesided=True, inverse=True),
    f32(2, 6, 2),
    np.array(11),
    reference=lambda x, n: np.fft.irfft(x[..., 0] + 1j * x[..., 1], 11)[..., None].astype(x.dtype),
    **TOLERANCE,
)

case(STFT(), f32(2, 32, 1), np.array(8), None, np.array(16), **TOLERANCE)
case(STFT(), f32(1, 40, 1), np.array(5), f32(12), **TOLERANCE)
case(STFT(onesided=False), f32(1, 40, 1), np.array(5), f32(12), np.array(12), **TOLERANCE)
case(STFT(onesided=False), f32(2, 20, 2), np.array(3), None, np.array(7), **TOLERANCE)
