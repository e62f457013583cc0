"""Register tiles of other machines, which this one can run too: kernels are tested in all of them."""

import pytest

from mnnx.backends.cpu.target import LEVELS, Target
from mnnx.backends.cpu.tiling import Tiling

_HOST = Tiling.of(Target.host())
#: By name: the host's own, one of 16 registers of 8 floats without dot products (AVX2), of 32 of 4 floats (NEON), without FMA (SSE2).
TILINGS = {
    "host": _HOST,
    "avx2": Tiling(4, 3, 8, _HOST.fma, "madd" if Target.host().runs(LEVELS["x86-64-v3"]) else "pairs"),
    "neon": Tiling(8, 2, 4, _HOST.fma, "pairs"),
    "sse2": Tiling(4, 2, 4, False, "pairs"),
}


@pytest.fixture(params=TILINGS)
def tiling(request, monkeypatch) -> Tiling:
    """Each of TILINGS in turn, as what executions plan with."""
    chosen = TILINGS[request.param]
    monkeypatch.setattr(Tiling, "of", lambda target: chosen)
    return chosen
