"""Ops on text."""

import numpy as np

from mnnx.schema.ops.text import RegexFullMatch, StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer
from tests.cases import case, integers


def text(*values):
    return np.array(values, object)


days = text("monday", "Tuesday", "MONDAY", "été")
case(StringNormalizer(case_change_action="UPPER"), days[:3])
case(StringNormalizer(stopwords=("Monday",)), days, reference=lambda x: text("Tuesday", "été"))
case(StringNormalizer(stopwords=("monday",), is_case_sensitive=True), days[None], reference=lambda x: x[:, 1:])
case(StringNormalizer(stopwords=("monday",)), text("Monday"), reference=lambda x: text(""))

case(StringConcat(), text("a", "b").reshape(2, 1), text(".x", "", ".é"))
case(StringConcat(), np.array("a", object), np.array("b", object))
case(StringSplit(), text("a  b c", " d ", ""), outputs=2)
case(StringSplit(delimiter=",", maxsplit=1), text("a,b,c", ",", "d").reshape(3, 1), outputs=2)
case(StringSplit(delimiter=","), np.empty((0, 2), object), outputs=2)

case(RegexFullMatch(pattern=r"(\w+)@example\.(com|org)"), text("a@example.com", "a@example.com.", "b@example.net", ""))
case(RegexFullMatch(pattern=r"\w|\pL\d"), text("e", "é", "é1"), reference=lambda x: np.array([True, False, True]))
case(RegexFullMatch(pattern=r"(?i)[[:alpha:]]{2,3}"), text("aB", "a", "abcd"), reference=lambda x: np.array([True, False, False]))
case(RegexFullMatch(pattern=r"(a*)*b"), text("a" * 5000, "aab"), reference=lambda x: np.array([False, True]))

grams = {
    "ngram_counts": (0, 4),
    "ngram_indexes": (0, 1, 2, 3, 4, 5, 6),
    "pool_int64s": (2, 3, 5, 4, 5, 6, 7, 8, 6, 7),
    "max_gram_length": 2,
}
tokens = integers("int64", 3, 12, low=2, high=9)
case(TfIdfVectorizer(mode="TF", min_gram_length=1, max_skip_count=0, **grams), tokens)
case(TfIdfVectorizer(mode="TF", min_gram_length=1, max_skip_count=5, **grams), tokens[0].astype(np.int32))
weights = (0.5, 1.0, 2.0, 3.0, 0.25, 1.5, 4.0)
case(TfIdfVectorizer(mode="IDF", min_gram_length=2, max_skip_count=1, weights=weights, **grams), tokens)
case(TfIdfVectorizer(mode="TFIDF", min_gram_length=1, max_skip_count=2, weights=weights, **grams), tokens)
words = {
    "ngram_counts": (0, 1),
    "ngram_indexes": (1, 0),
    "pool_strings": ("a", "a", "b"),
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 0,
}
case(TfIdfVectorizer(mode="TF", **words), text("a", "b", "a", "c", "a", "b"), reference=lambda x: np.array([2, 3], np.float32))
