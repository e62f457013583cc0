"""One definition per operator: a file per family, read by the converter, the interpreter and every backend."""

from mnnx.schema.ops.base import OPS, DataDependent, Op, RuleError, Spec, Subgraph, load_all, op, require, specs_of

__all__ = ["OPS", "DataDependent", "Op", "RuleError", "Spec", "Subgraph", "load_all", "op", "require", "specs_of"]
