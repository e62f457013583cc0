"""Ops on text. Tensors of strings are object arrays of str; they live on the host."""

import itertools

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require
from mnnx.schema.ops.elementwise import STRING, broadcast
from mnnx.schema.ops.regex import compiled


def _require_strings(*specs: Spec) -> None:
    require(all(spec.dtype == STRING for spec in specs), f"the inputs must be strings; they are {', '.join(map(str, specs))}")


@op("StringNormalizer")
class StringNormalizer(Op):
    """Takes stop words out of x [C] or [1, C] and changes the case of the others; [""] where nothing is left. StringNormalizer-10."""

    case_change_action: str = "NONE"
    is_case_sensitive: bool = False
    stopwords: tuple[str, ...] = ()

    def check(self):
        known = ("NONE", "LOWER", "UPPER")
        require(
            self.case_change_action in known, f"case_change_action must be one of {', '.join(known)}; it is {self.case_change_action!r}"
        )

    def infer(self, x: Spec) -> Spec:
        _require_strings(x)
        require(x.rank == 1 or (x.rank == 2 and x.shape[0] == 1), f"the input must have the shape [C] or [1, C]; it is {x}")
        if self.stopwords or not x.size:
            raise DataDependent
        return Spec(STRING, x.shape)


@op("StringConcat")
class StringConcat(Op):
    """x + y, element by element, broadcast. StringConcat-20."""

    def infer(self, x: Spec, y: Spec) -> Spec:
        _require_strings(x, y)
        return Spec(STRING, broadcast(x.shape, y.shape))


@op("StringSplit")
class StringSplit(Op):
    """x → (the parts of each string, padded with "" to the largest number along a new last axis, int64 numbers of parts). StringSplit-20.

    Splits at `delimiter`, or at runs of white space where it is empty; at most `maxsplit` times.
    """

    delimiter: str = ""
    maxsplit: int | None = None

    def infer(self, x: Spec) -> Spec:
        _require_strings(x)
        raise DataDependent


@op("RegexFullMatch")
class RegexFullMatch(Op):
    """Whether each string as a whole matches the regular expression (RE2's syntax). RegexFullMatch-20."""

    pattern: str

    def check(self):
        compiled(self.pattern)

    def infer(self, x: Spec) -> Spec:
        _require_strings(x)
        return Spec(np.dtype(bool), x.shape)


@op("TfIdfVectorizer")
class TfIdfVectorizer(Op):
    """Counts n-grams of rows of tokens: x [N, C] (or [C]) → float32 [N, columns]. TfIdfVectorizer-9.

    The pool lists all 1-grams, then all 2-grams, …; those of length n start at ngram_counts[n - 1]. Its i-th n-gram is counted in
    column ngram_indexes[i]. Between the tokens of an n-gram the same number of tokens, up to max_skip_count, may be skipped. TF: the
    counts; IDF: the column's weight where the count isn't 0; TFIDF: count times weight. As in ONNX Runtime weights are per column.
    """

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def check(self):
        require(0 < self.min_gram_length <= self.max_gram_length, "n-gram lengths must be positive, in order")
        require(self.max_skip_count >= 0, f"max_skip_count must not be negative; it is {self.max_skip_count}")
        require(self.mode in ("TF", "IDF", "TFIDF"), f"mode must be TF, IDF or TFIDF; it is {self.mode!r}")
        require(bool(self.pool_int64s) != bool(self.pool_strings), "the pool must be given as strings or as integers")
        require(all(-(2**63) <= token < 2**63 for token in self.pool_int64s), "tokens must fit in 64 bits")
        pool = len(self.pool_strings or self.pool_int64s)
        require(self.ngram_indexes and min(self.ngram_indexes) >= 0, "ngram_indexes must not be empty, nor have negative entries")
        bounds = (*self.ngram_counts, pool)
        require(self.ngram_counts and bounds[0] == 0, "ngram_counts must start with 0")
        total = 0
        for length, (start, end) in enumerate(itertools.pairwise(bounds), 1):
            require(
                start <= end and (end - start) % length == 0, f"ngram_counts {self.ngram_counts} doesn't cut a pool of {pool} into n-grams"
            )
            total += (end - start) // length
        require(
            total == len(self.ngram_indexes), f"ngram_indexes must have an entry per n-gram ({total}); it has {len(self.ngram_indexes)}"
        )
        require(len(self.weights) in (0, len(self.ngram_indexes)), f"weights must have {len(self.ngram_indexes)} entries")
        require(not self.weights or self.columns <= len(self.weights), "there must be a weight for each column")

    @property
    def columns(self) -> int:
        return max(self.ngram_indexes) + 1

    def infer(self, x: Spec) -> Spec:
        allowed = (STRING,) if self.pool_strings else (np.dtype("int32"), np.dtype("int64"))
        require(
            x.dtype in allowed, f"the input must be {' or '.join(map(dtypes.name, allowed))}, as the pool is; it is {dtypes.name(x.dtype)}"
        )
        require(x.rank in (1, 2), f"the input must have the shape [N, C] or [C]; it is {x}")
        return Spec(np.dtype("float32"), (*x.shape[:-1], self.columns))
