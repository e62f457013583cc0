"""Importers of ops on text."""

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops.text import RegexFullMatch, StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer

direct(RegexFullMatch, StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer)
