"""Ops on tokens and words that ONNX Runtime adds to ONNX."""

import numpy as np

from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require
from mnnx.schema.ops.elementwise import STRING
from mnnx.schema.ops.regex import compiled
from mnnx.schema.ops.rules import require_shape

_INT64 = np.dtype(np.int64)
_HASHED = tuple(np.dtype(t) for t in ("uint32", "int32", "uint64", "int64", "float32", "float64", object))


@op("com.microsoft::MurmurHash3")
class MurmurHash3(Op):
    """The 32-bit hash MurmurHash3_x86_32 of each element's bytes (of a text's UTF-8): uint32 where `positive`, else int32."""

    positive: bool = True
    seed: int = 0

    def infer(self, x: Spec) -> Spec:
        require(x.dtype in _HASHED, f"x must be numbers of 32 or 64 bits, or strings; it is {x}")
        return Spec(np.dtype(np.uint32 if self.positive else np.int32), x.shape)


@op("com.microsoft::NGramRepeatBlock")
class NGramRepeatBlock(Op):
    """(int64 tokens [N, L], float32 scores [N, V]) → the scores, -infinity where the token would repeat an n-gram of its sequence."""

    ngram_size: int

    def check(self):
        require(self.ngram_size > 0, f"ngram_size must be positive; it is {self.ngram_size}")

    def infer(self, tokens: Spec, scores: Spec) -> Spec:
        require(tokens.dtype == _INT64 and tokens.rank == 2, f"tokens must be int64 [N, L]; they are {tokens}")
        require(scores.dtype == np.float32 and scores.rank == 2, f"scores must be float32 [N, V]; they are {scores}")
        require(scores.shape[0] == tokens.shape[0], f"there must be scores for {tokens.shape[0]} sequences; they are {scores}")
        return Spec(scores.dtype, scores.shape)


@op("com.microsoft::BifurcationDetector")
class BifurcationDetector(Op):
    """One step of aggressive decoding, on int64 source [S], current [C], the last match (a scalar) and predicted [S + 1 - match]?

    Outputs: current, and predicted up to the first token that isn't the source's behind the match; and where, in the source, the only
    appearance of its last n tokens ends, for the shortest n of min_ngram_size … max_ngram_size that appears once, else -1.
    """

    max_ngram_size: int = 3
    min_ngram_size: int = 1

    def check(self):
        legal = 0 < self.min_ngram_size <= self.max_ngram_size
        require(legal, f"n-gram sizes must be positive and in order; they are {self.min_ngram_size} and {self.max_ngram_size}")

    def infer(self, source: Spec, current: Spec, match: Spec, predicted: Spec | None = None) -> tuple[Spec, Spec]:
        for spec in (source, current, match, predicted):
            require(spec is None or spec.dtype == _INT64, f"tokens must be int64; found {spec}")
        require(source.rank == current.rank == 1 and match.size == 1, f"there must be rows of tokens; they are {source} and {current}")
        if predicted is None:
            return Spec(_INT64, current.shape), Spec(_INT64, ())
        require_shape("predicted", predicted, (source.shape[0] + 1 - match.ints()[0],))
        raise DataDependent


@op("com.microsoft::Tokenizer")
class Tokenizer(Op):
    """Each string of x, [C] or [N, C], cut into tokens along a new last axis, filled up with pad_value to the largest number of them.

    `tokenexp`: a token is a longest match of it (RE2's syntax). Else the parts between matches of the `separators`, one after the
    other, are tokens; between characters where the only one is "". Those of less than `mincharnum` characters are left out. `mark`:
    the tokens stand between U+0002 and U+0003.
    """

    mark: bool
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] = ()
    tokenexp: str = ""

    @property
    def single(self) -> bool:
        """Whether each character is a token."""
        return self.tokenexp == "." or self.separators == ("",)

    def check(self):
        require(bool(self.tokenexp) != bool(self.separators), "there must be a tokenexp or separators, not both")
        require(self.mincharnum > 0, f"mincharnum must be positive; it is {self.mincharnum}")
        require(self.single or "" not in self.separators, "a separator must not be empty beside others")
        require(not self.single or self.mincharnum == 1, "mincharnum must be 1 where each character is a token")
        if not self.single:
            for expression in (self.tokenexp,) if self.tokenexp else self.separators:
                compiled(expression)

    def infer(self, x: Spec) -> Spec:
        require(x.dtype == STRING and x.rank in (1, 2), f"x must be strings, [C] or [N, C]; it is {x}")
        if x.size == 0:
            return Spec(STRING, x.shape)
        raise DataDependent
