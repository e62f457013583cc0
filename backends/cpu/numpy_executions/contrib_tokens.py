"""NumPy executions of ONNX Runtime's ops on tokens and words."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import require
from mnnx.schema.ops.contrib_tokens import BifurcationDetector, MurmurHash3, NGramRepeatBlock, Tokenizer
from mnnx.schema.ops.elementwise import STRING
from mnnx.schema.ops.regex import Pattern, compiled

_MASK = 0xFFFFFFFF
_MOST_PARTS = 1 << 28  # what a result may hold, padding included


@numpy_execution(MurmurHash3)
def murmur_hash3(op: MurmurHash3, x: np.ndarray) -> np.ndarray:
    rows = [text.encode("utf-8", "surrogateescape") if x.dtype == STRING else text.tobytes() for text in x.reshape(-1)]
    hashes = np.array([_hashed(row, op.seed & _MASK) for row in rows], np.uint32).reshape(x.shape)
    return hashes if op.positive else hashes.view(np.int32)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _hashed(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32, by Austin Appleby, in the public domain."""
    hashed, whole = seed, len(data) & ~3
    for start in range(0, len(data), 4):
        part = int.from_bytes(data[start : start + 4], "little")
        part = _rotated(part * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
        hashed ^= part
        if start < whole:
            hashed = (_rotated(hashed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ hashed >> shift) * factor & _MASK
    return hashed ^ hashed >> 16


@numpy_execution(NGramRepeatBlock)
def ngram_repeat_block(op: NGramRepeatBlock, tokens: np.ndarray, scores: np.ndarray) -> np.ndarray:
    result, size = scores.copy(), op.ngram_size
    if tokens.shape[1] < size:
        return result
    grams = np.lib.stride_tricks.sliding_window_view(tokens, size, 1)
    last = tokens[:, tokens.shape[1] - size + 1 :]
    sequence, place = np.nonzero((grams[..., :-1] == last[:, None]).all(-1))
    repeated = grams[sequence, place, -1]
    legal = ((repeated >= 0) & (repeated < scores.shape[1])).all()
    require(legal, f"tokens must be in 0 … {scores.shape[1] - 1}, as there are scores; found {repeated[:8]}")
    result[sequence, repeated] = -np.inf
    return result


@numpy_execution(BifurcationDetector)
def bifurcation_detector(
    op: BifurcationDetector, source: np.ndarray, current: np.ndarray, match: np.ndarray, predicted: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    if predicted is not None:
        start = int(match.reshape(()))
        require(0 <= start <= len(source), f"the last match must be in 0 … {len(source)}; it is {start}")
        other = np.nonzero(source[start:] != predicted[:-1])[0]
        current = np.concatenate([current, predicted[: (other[0] if len(other) else len(source) - start) + 1]])
    found = -1
    for size in range(op.min_ngram_size, min(op.max_ngram_size, len(current), len(source)) + 1):
        grams = np.lib.stride_tricks.sliding_window_view(source, size)
        places = np.nonzero((grams == current[len(current) - size :]).all(-1))[0]
        if len(places) == 1:
            found = places[0] + size
        if len(places) < 2:
            break
    return current, np.array(found, np.int64)


@numpy_execution(Tokenizer)
def tokenizer(op: Tokenizer, x: np.ndarray) -> np.ndarray:
    if x.size == 0:
        return x
    rows = [_tokens(op, text) for text in x.reshape(-1)]
    width = max(map(len, rows))
    if op.mark and width:
        rows, width = [["\x02", *row, "\x03"] for row in rows], width + 2
    require(len(rows) * width <= _MOST_PARTS, f"{len(rows)} strings with up to {width} tokens are more than {_MOST_PARTS}")
    result = np.full((len(rows), width), op.pad_value, object)
    for cells, row in zip(result, rows, strict=True):
        cells[: len(row)] = row
    return result.reshape(*x.shape, width)


def _tokens(op: Tokenizer, text: str) -> list[str]:
    if op.single:
        return list(text)
    if op.tokenexp:
        tokens = [text[start:end] for start, end in _matches(compiled(op.tokenexp), text)]
    else:
        tokens = [text]
        for separator in op.separators:
            tokens = [part for token in tokens for part in _between(compiled(separator), token)]
    return [token for token in tokens if len(token) >= op.mincharnum]


def _matches(pattern: Pattern, text: str) -> list[tuple[int, int]]:
    """Start and end of the matches, from left to right the longest ones; empty ones don't count."""
    found, at = [], 0
    while at < len(text):
        end = pattern.longest_match(text, at)
        if end is None or end == at:
            at += 1
        else:
            found.append((at, end))
            at = end
    return found


def _between(separator: Pattern, text: str) -> list[str]:
    edges = [0, *(edge for match in _matches(separator, text) for edge in match), len(text)]
    return [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
