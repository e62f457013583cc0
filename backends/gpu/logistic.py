"""The logistic function in C."""

from __future__ import annotations

_TEXT = """
TYPE NAME(TYPE v) {
    TYPE x = clamp(v, -18.0f, 18.0f);
    TYPE s = x * x;
    TYPE p = MADD(s, SPLAT(4.37031012579801e-11f), SPLAT(1.15627324459942e-07f));
    p = MADD(p, s, SPLAT(6.08574864600143e-05f));
    p = MADD(p, s, SPLAT(8.51377133304701e-03f));
    p = MADD(p, s, SPLAT(2.48287947061529e-01f));
    TYPE q = MADD(s, SPLAT(6.10247389755681e-13f), SPLAT(5.76102136993427e-09f));
    q = MADD(q, s, SPLAT(6.29106785017040e-06f));
    q = MADD(q, s, SPLAT(1.70198817374094e-03f));
    q = MADD(q, s, SPLAT(1.16817656904453e-01f));
    q = MADD(q, s, SPLAT(9.93151921023180e-01f));
    return clamp(p * x / q + 0.5f, 0.0f, 1.0f);
}
"""


def logistic(name: str, madd: str, width: int = 1) -> str:
    """A function of floats, or of vectors of them, within 1e-7: Eigen's rational fit. Other runtimes and the CPU backend use it as well:
    quantized networks then round alike, where `madd` is `fused`."""
    kind, splat = ("float", "") if width == 1 else (f"float{width}", f"splat{width}")
    return _TEXT.replace("TYPE", kind).replace("NAME", name).replace("MADD", madd).replace("SPLAT", splat)
