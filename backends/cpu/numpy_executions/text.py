"""Executions of ops on text."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.base import require
from mnnx.schema.ops.regex import compiled
from mnnx.schema.ops.text import RegexFullMatch, StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer
from mnnx.schema.records import Row

_MOST_PARTS = 1 << 28  # what a result may hold, padding included


def _strings(values: list[str], shape: tuple[int, ...]) -> np.ndarray:
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(shape)


@numpy_execution(StringNormalizer)
def string_normalizer(op: StringNormalizer, x: np.ndarray) -> np.ndarray:
    folded = (lambda s: s) if op.is_case_sensitive else str.lower
    stop = {folded(word) for word in op.stopwords}
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[op.case_change_action]
    kept = [change(word) for word in x.reshape(-1) if folded(word) not in stop] or [""]
    return _strings(kept, (*x.shape[:-1], len(kept)))


@numpy_execution(StringConcat)
def string_concat(op: StringConcat, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(np.add(x, y), object)


@numpy_execution(StringSplit)
def string_split(op: StringSplit, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    limit = -1 if op.maxsplit is None else op.maxsplit
    parts = [text.split(op.delimiter or None, limit) for text in x.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64)
    width = int(counts.max(initial=0))
    require(len(parts) * width <= _MOST_PARTS, f"{len(parts)} strings with up to {width} parts are more than {_MOST_PARTS}")
    padded = [part for p in parts for part in (*p, *[""] * (width - len(p)))]
    return _strings(padded, (*x.shape, width)), counts.reshape(x.shape)


@numpy_execution(RegexFullMatch)
def regex_full_match(op: RegexFullMatch, x: np.ndarray) -> np.ndarray:
    pattern = compiled(op.pattern)
    return np.array([pattern.full_match(text) for text in x.reshape(-1)], bool).reshape(x.shape)


class _Trie(Row):
    """The pool's n-grams: `keys` (sorted) are state * tokens + token, `following` the states they lead to; 0 is the root."""

    tokens: dict[object, int]
    keys: np.ndarray
    following: np.ndarray
    columns: np.ndarray  # of each state: the column of the n-gram that ends there, or -1


@lru_cache(maxsize=8)
def _trie(op: TfIdfVectorizer) -> _Trie:
    pool = op.pool_strings or op.pool_int64s
    tokens = {token: i for i, token in enumerate(dict.fromkeys(pool))}
    states: dict[int, int] = {}
    ends: dict[int, int] = {}
    columns = iter(op.ngram_indexes)
    bounds = (*op.ngram_counts, len(pool))
    for length, (start, end) in enumerate(itertools.pairwise(bounds), 1):
        for first in range(start, end, length):
            state = 0
            for token in pool[first : first + length]:
                state = states.setdefault(state * len(tokens) + tokens[token], len(states) + 1)
            ends[state] = next(columns)
    keys = np.array(sorted(states), np.int64)
    table = np.full(len(states) + 1, -1, np.int64)
    table[list(ends)] = list(ends.values())
    return _Trie(tokens, keys, np.array([states[key] for key in keys.tolist()], np.int64), table)


@numpy_execution(TfIdfVectorizer)
def tfidf_vectorizer(op: TfIdfVectorizer, x: np.ndarray) -> np.ndarray:
    trie = _trie(op)
    rows = np.atleast_2d(x)
    ids = np.array([trie.tokens.get(token, -1) for token in rows.reshape(-1).tolist()], np.int64).reshape(rows.shape)
    counts = np.zeros((len(rows), op.columns), np.float32)
    longest = min(op.max_gram_length, len(op.ngram_counts), rows.shape[1])
    for length in range(op.min_gram_length, longest + 1):
        # The distance between neighbouring tokens is one more than what is skipped; a 1-gram has no neighbours.
        widest = min(op.max_skip_count + 1, (rows.shape[1] - 1) // (length - 1)) if length > 1 else 1
        for distance in range(1, widest + 1):
            _count(trie, ids, length, distance, counts)
    weights = np.array(op.weights[: op.columns] or (1,), np.float32)
    if op.mode == "IDF":
        counts = (counts > 0) * weights
    elif op.mode == "TFIDF":
        counts = counts * weights
    return counts.astype(np.float32, copy=False).reshape(*x.shape[:-1], op.columns)


def _count(trie: _Trie, ids: np.ndarray, length: int, distance: int, counts: np.ndarray) -> None:
    """Adds to counts [N, columns] the n-grams of ids [N, C] with this length and distance between tokens."""
    windows = ids.shape[1] - (length - 1) * distance
    state = np.zeros((len(ids), windows), np.int64)
    for step in range(length):
        token = ids[:, step * distance : step * distance + windows]
        key = np.where((state >= 0) & (token >= 0), state * len(trie.tokens) + token, -1)
        at = np.minimum(np.searchsorted(trie.keys, key), len(trie.keys) - 1)
        state = np.where(trie.keys[at] == key, trie.following[at], -1)
    column = np.where(state >= 0, trie.columns[state], -1)
    row, window = np.nonzero(column >= 0)
    np.add.at(counts, (row, column[row, window]), 1)
