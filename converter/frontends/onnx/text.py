"""Importers of ops on text."""

from __future__ import annotations

from mnnx.backends.cpu.numpy_executions.regex import Pattern
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.base import Op, RuleError
from mnnx.schema.ops.text import RegexFullMatch, StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer

direct(StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer)


@importer("RegexFullMatch")
def regex_full_match(node: OnnxNode, x: Value) -> Op:
    op = node.op(RegexFullMatch)
    try:
        Pattern(op.pattern)
    except RuleError as error:
        node.fail(str(error))
    return op
