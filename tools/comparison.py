"""How close values are to those of a reference: what `mnnx verify` goes by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import onnx


class Bounds(NamedTuple):
    """A float tensor may differ by `atol` + `rtol` times the largest magnitude of the reference's."""

    rtol: float = 1e-3
    atol: float = 1e-5


def compare(name: str, got: Any, wanted: Any, rtol: float, atol: float, quantized: bool = False) -> dict[str, Any]:
    """How a value differs from the reference's: {name, dtype, shape, equal, error, allowed, note, rounding_steps}.

    Floats are equal where |got - wanted| <= atol + rtol * max|wanted| for every finite value, and infinities and NaNs stand in the same
    places; everything else must be the same. quantized: integers are equal too where but a few values, rounding_steps, are one step off.
    """
    import numpy as np

    from mnnx.schema import dtypes

    row: dict[str, Any] = {"name": name, "dtype": "", "shape": None, "equal": False, "error": None, "allowed": None, "note": ""}
    row["rounding_steps"] = None
    wanted = np.asarray(wanted) if isinstance(wanted, np.generic) else wanted  # the reference evaluator gives some scalars so
    if not isinstance(wanted, np.ndarray):
        return row | _compare_others(name, got, wanted, rtol, atol)
    wanted = wanted.astype(object) if wanted.dtype.kind in "SUT" else wanted
    row |= {"dtype": dtypes.name(wanted.dtype), "shape": list(wanted.shape)}
    if not isinstance(got, np.ndarray):
        return row | {"note": f"mnnx gives {type(got).__name__}"}
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return row | {"note": f"mnnx gives {dtypes.name(got.dtype)} {list(got.shape)}"}
    if not (dtypes.is_float(wanted.dtype) or wanted.dtype.kind == "c") or not wanted.size:
        different = int(np.count_nonzero(got != wanted))
        if different and _is_rounding(got, wanted, different):
            note = f"one rounding step in {different} of {wanted.size} values"
            return row | {"equal": quantized, "note": note, "rounding_steps": different}
        return row | {"equal": not different, "note": f"{different} of {wanted.size} values differ" if different else ""}
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), wanted.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        places = int(np.count_nonzero(~((a == b) | (np.isnan(a) & np.isnan(b)) | (finite & np.isfinite(a)))))
        return row | {"note": f"NaN or infinity in {places} other places"}
    error = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    allowed = atol + rtol * float(np.abs(b[finite]).max(initial=0.0))
    return row | {"equal": error <= allowed, "error": error, "allowed": allowed}


def _is_rounding(got: np.ndarray, wanted: np.ndarray, different: int) -> bool:
    """Whether these may be quantized values that were rounded differently at the edge between two steps: integers of at most 16 bits,
    of which at most 1 % (or just one) are off, none by more than 1."""
    import numpy as np

    from mnnx.schema import dtypes

    if wanted.dtype in (dtypes.STRING, np.bool_) or wanted.dtype.itemsize > 2 or different > max(1, wanted.size // 100):
        return False
    return bool(np.abs(got.astype(np.int32) - wanted.astype(np.int32)).max() == 1)


def made_by_quantization(proto: onnx.ModelProto) -> set[str]:
    """The tensors that ops which round to quantized values make."""
    kinds = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear")
    return {name for node in proto.graph.node if node.op_type.startswith(kinds) for name in node.output if name}


def _compare_others(name: str, got: Any, wanted: Any, rtol: float, atol: float) -> dict[str, Any]:
    """Sequences item by item, maps by their values in order of keys; the first item that differs speaks for all."""
    import numpy as np

    if wanted is None:
        return {"dtype": "absent", "equal": got is None}
    kind = "map" if isinstance(wanted, dict) else "sequence"
    if not isinstance(got, type(wanted)) or len(got) != len(wanted) or (kind == "map" and set(got) != set(wanted)):
        return {"dtype": kind, "note": "mnnx gives another number of items, or other keys"}
    keys = sorted(wanted) if kind == "map" else range(len(wanted))
    for key in keys:
        pair = [np.asarray(v[key]) if kind == "map" or np.isscalar(v[key]) else v[key] for v in (got, wanted)]
        if kind == "map":
            pair[0] = pair[0].astype(pair[1].dtype)  # Python numbers on both sides
        row = compare(f"{name}[{key!r}]", *pair, rtol, atol)
        if not row["equal"]:
            return {"dtype": kind, "error": row["error"], "allowed": row["allowed"], "note": f"item {key!r}: {row['note'] or 'differs'}"}
    return {"dtype": kind, "shape": [len(wanted)], "equal": True}


def sufficient_rtol(rows: list[dict[str, Any]], rtol: float, atol: float) -> float | None:
    """The --rtol, of one digit, with which all outputs would agree; None where none would do."""
    different = [row for row in rows if not row["equal"]]
    if rtol <= 0 or any(row["error"] is None or row["allowed"] <= atol for row in different):
        return None
    needed = max((row["error"] - atol) * rtol / (row["allowed"] - atol) for row in different)
    digit = 10.0 ** math.floor(math.log10(needed))
    return math.ceil(needed / digit) * digit
