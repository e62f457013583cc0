"""Rules on axes, indices and shapes that the op families share."""

from collections.abc import Iterable

from mnnx.schema.ops.base import Spec, require


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """`axis` counted from the front; raises RuleError where it isn't in [-rank, rank-1]."""
    require(-rank <= axis < rank, f"{what} must be in [{-rank}, {rank - 1}], not {axis}")
    return axis % rank


def normalize_axes(axes: Iterable[int], rank: int, what: str = "axes") -> tuple[int, ...]:
    """`axes` counted from the front, in their order; raises RuleError where one is out of range or repeated."""
    normalized = tuple(normalize_axis(axis, rank, what) for axis in axes)
    require(len(set(normalized)) == len(normalized), f"{what} must not repeat an axis: {normalized}")
    return normalized


def require_integers(spec: Spec, what: str) -> None:
    """Raises RuleError unless `spec` is of dtype int32 or int64."""
    require(spec.dtype.name in ("int32", "int64"), f"{what} must be int32 or int64, not {spec}")


def require_vector(spec: Spec, what: str) -> None:
    """Raises RuleError unless `spec` is a 1-D tensor of int32 or int64."""
    require_integers(spec, what)
    require(spec.rank == 1, f"{what} must be 1-D, not {spec}")


def require_scalar(spec: Spec, what: str) -> None:
    """Raises RuleError unless `spec` holds one element."""
    require(spec.size == 1, f"{what} must be a scalar, not {spec}")
