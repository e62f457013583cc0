"""Importers of ONNX Runtime's ops on tokens and words (com.microsoft)."""

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops.contrib_tokens import BifurcationDetector, MurmurHash3, NGramRepeatBlock, Tokenizer

direct(BifurcationDetector, MurmurHash3, NGramRepeatBlock, Tokenizer, domain="com.microsoft")
