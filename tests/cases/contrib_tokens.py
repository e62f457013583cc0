"""ONNX Runtime's ops on tokens and words: published values, and their definitions written out."""

import numpy as np

from mnnx.schema.ops.contrib_tokens import BifurcationDetector, MurmurHash3, NGramRepeatBlock, Tokenizer
from tests.cases import case, f32, i64, integers


def words(*texts):
    return np.array(texts, object)


# Values that ONNX Runtime's documentation of the op and scikit-learn's murmurhash3_32 have in common.
case(MurmurHash3(), np.array([3, 4], np.int32), reference=lambda x: np.array([847579505, 1889779975], np.uint32))
case(MurmurHash3(positive=False, seed=42), np.array(3, np.int32), reference=lambda x: np.array(-1823081949, np.int32))
case(MurmurHash3(), words("foo", ""), reference=lambda x: np.array([4138058784, 0], np.uint32))
case(MurmurHash3(positive=False), words("foo"), reference=lambda x: np.array([-156908512], np.int32))


def without_repetition(size):
    def reference(tokens, scores):
        result = scores.copy()
        for row, sequence in zip(result, tokens.tolist(), strict=True):
            end = sequence[len(sequence) - size + 1 :]
            for start in range(len(sequence) - size + 1):
                if sequence[start : start + size - 1] == end:
                    row[sequence[start + size - 1]] = -np.inf
        return result

    return reference


for size in (1, 2, 3, 9):
    case(NGramRepeatBlock(ngram_size=size), integers("int64", 3, 8, high=4), f32(3, 5), reference=without_repetition(size))

_SOURCE = i64(5, 6, 7, 8, 6, 9)
case(BifurcationDetector(), _SOURCE, i64(1, 7), np.array(0), outputs=2, reference=lambda *_: (i64(1, 7), np.array(3)))
case(BifurcationDetector(), _SOURCE, i64(8, 6), np.array(0), outputs=2, reference=lambda *_: (i64(8, 6), np.array(5)))
case(BifurcationDetector(), _SOURCE, i64(3), np.array(0), outputs=2, reference=lambda *_: (i64(3), np.array(-1)))
case(
    BifurcationDetector(),
    _SOURCE,
    i64(1),
    np.array(3),
    i64(8, 5, 9, 4),
    outputs=2,
    reference=lambda *_: (i64(1, 8, 5), np.array(1)),
)
case(
    BifurcationDetector(),
    _SOURCE,
    i64(1),
    np.array(4),
    i64(6, 9, 4),
    outputs=2,
    reference=lambda *_: (i64(1, 6, 9, 4), np.array(-1)),
)


def tokenized(rows, *texts, **attributes):
    op = Tokenizer(**{"mark": False, "mincharnum": 1, "pad_value": "#"} | attributes)
    case(op, words(*texts), reference=lambda x: np.array(rows, object).reshape(len(rows), -1))


# The first row is the example of the op's documentation; what it leaves open is as ONNX Runtime does it.
tokenized(
    [["Hello", "World", "#", "#", "#"], ["I", "love", "computer", "science", "!"]],
    *("Hello World", "I love computer science !"),
    separators=(" ",),
)
tokenized([["\x02", "a", "é", "\x03"], ["\x02", "\x03", "#", "#"]], "aé", "", separators=("",), mark=True)
tokenized([["a", "b", "c"], ["q", "#", "#"]], "a b  c", " q ", separators=(" ",))
tokenized([["#"], ["xy"]], "a b", "xy z", separators=(" ",), mincharnum=2)
tokenized([["a", "b", "cd"], ["xy", "#", "#"]], "a;b, cd", "xy", separators=(";", ", "))
tokenized([["ab", "cd"], ["#", "#"]], "ab12cd", "345", tokenexp="[a-z]+")
tokenized([["abc", "abcd"]], "abc abcd ab", tokenexp="abc|abcd")
tokenized([["a", "é"]], "aé", tokenexp=".")
tokenized([[], []], "  ", " ", separators=(" ",), mark=True)
case(
    Tokenizer(mark=False, mincharnum=1, pad_value="", separators=(" ",)),
    words("a b", "c", "d", "e").reshape(2, 2),
    reference=lambda x: words("a", "b", "c", "", "d", "", "e", "").reshape(2, 2, 2),
)
case(Tokenizer(mark=False, mincharnum=1, pad_value="", separators=(" ",)), words().reshape(2, 0), reference=lambda x: x)
