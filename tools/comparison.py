"""How close values are to those of a reference: what `mnnx verify` goes by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from mnnx.schema.model import Graph
    from mnnx.schema.ops.base import Op


class Bounds(NamedTuple):
    """A float tensor may differ by `atol` + `rtol` times the largest magnitude of the reference's."""

    rtol: float = 1e-3
    atol: float = 1e-5


#: Ops that round floats to whole ones; a Cast does where it makes integers of them.
_ROUNDING = ("Ceil", "Floor", "Round")


def compare(name: str, got: Any, wanted: Any, rtol: float, atol: float, quantized: bool = False, maker: str = "") -> dict[str, Any]:
    """How a value differs from the reference's: {name, dtype, shape, equal, error, allowed, note, rounding_steps}.

    Floats are equal where |got - wanted| <= atol + rtol * max|wanted| for every finite value, and infinities and NaNs stand in the same
    places; everything else must be the same. rounding_steps: how many values are one step off, where these are few, and it is quantized
    values that are compared: integers of at most 16 bits, or whole numbers of any type that `maker`, an op that rounds, made. quantized:
    integers are equal too where it is but such steps.
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
        may_be_rounded = wanted.dtype not in (dtypes.STRING, np.bool_) and (wanted.dtype.itemsize <= 2 or maker == "Cast")
        if different and may_be_rounded and _is_rounding(got, wanted, different):
            return row | {"equal": quantized, "note": _steps(different, wanted), "rounding_steps": different}
        return row | {"equal": not different, "note": f"{different} of {wanted.size} values differ" if different else ""}
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), wanted.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        places = int(np.count_nonzero(~((a == b) | (np.isnan(a) & np.isnan(b)) | (finite & np.isfinite(a)))))
        return row | {"note": f"NaN or infinity in {places} other places"}
    error = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    allowed = atol + rtol * float(np.abs(b[finite]).max(initial=0.0))
    row |= {"equal": error <= allowed, "error": error, "allowed": allowed}
    different = int(np.count_nonzero(a[finite] != b[finite]))
    if not row["equal"] and maker in _ROUNDING and _is_rounding(a[finite], b[finite], different):
        row |= {"note": _steps(different, wanted), "rounding_steps": different}
    return row


def _is_rounding(got: np.ndarray, wanted: np.ndarray, different: int) -> bool:
    """Whether whole numbers may be rounded differently at the edge between two steps: at most 1 % (or just one) are off, none by more
    than 1."""
    if different > max(1, wanted.size // 100):
        return False
    places = got != wanted
    pairs = zip(got[places].tolist(), wanted[places].tolist(), strict=True)
    return all(abs(int(a) - int(b)) == 1 for a, b in pairs)


def _steps(different: int, wanted: np.ndarray) -> str:
    return f"one rounding step in {different} of {wanted.size} values"


def compare_form(name: str, got: Any, wanted: Any) -> dict[str, Any]:
    """As `compare`, for values that depend on random numbers: only their kind, dtype and shape must be the same."""
    import numpy as np

    row = compare(name, got, wanted, 0, 0)
    wanted = np.asarray(wanted) if isinstance(wanted, np.generic) else wanted
    forms = [(value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value) for value in (got, wanted)]
    if not row["equal"] and forms[0] != forms[1]:
        return row
    nothing = dict.fromkeys(("error", "allowed", "rounding_steps"))
    return row | nothing | {"equal": True, "note": "depends on random numbers: dtype and shape are compared"}


def drawn_at_random(graph: Graph) -> set[str]:
    """The tensors of a graph that depend on random numbers."""
    drawn: set[int] = set()
    for node in graph.nodes:
        if _draws(node.op) or not drawn.isdisjoint(node.inputs):
            drawn.update(i for i in node.outputs if i >= 0)
    return {graph.values[i].name for i in drawn}


def _draws(op: Op) -> bool:
    """Whether the op, or one in its subgraphs, draws random numbers."""
    from mnnx.schema.model import Graph

    inner = [getattr(op, key) for key in op.fields]
    return not op.deterministic or any(_draws(node.op) for graph in inner if isinstance(graph, Graph) for node in graph.nodes)


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
