"""Rules that many operator definitions share; each raises RuleError where it is broken."""

from mnnx.schema import dtypes
from mnnx.schema.ops.base import RuleError, Spec, require
from mnnx.schema.ops.elementwise import FLOATS

#: Attributes and sizes stay below this, so that products of two of them fit in 64 bits.
LIMIT = 2**31


def require_given(**specs: Spec | None) -> None:
    """None of these inputs may be left out."""
    for name, spec in specs.items():
        require(spec is not None, f"{name} must be given")


def require_floats(**specs: Spec | None) -> None:
    """Every given tensor must be of a float type of 16, 32 or 64 bits, all of the same one."""
    given = {name: spec for name, spec in specs.items() if spec is not None}
    require_same_dtype(**given)
    for name, spec in given.items():
        if spec.dtype not in FLOATS:
            raise RuleError(f"{name} must be float16, bfloat16, float32 or float64; it is {dtypes.name(spec.dtype)}")


def require_same_dtype(**specs: Spec | None) -> None:
    """The given tensors must be of one dtype."""
    given = [(name, spec) for name, spec in specs.items() if spec is not None]
    for name, spec in given[1:]:
        first, reference = given[0]
        if spec.dtype != reference.dtype:
            raise RuleError(f"{name} must be {dtypes.name(reference.dtype)}, as {first}; it is {dtypes.name(spec.dtype)}")


def require_shape(name: str, spec: Spec | None, *shapes: tuple[int, ...]) -> None:
    """A tensor, where it is given, must have one of these shapes."""
    if spec is not None and spec.shape not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise RuleError(f"{name} must have the shape {wanted}; it has {list(spec.shape)}")
