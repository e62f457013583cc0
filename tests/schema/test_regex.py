"""The matcher of RegexFullMatch: RE2's syntax, in time linear in the text."""

import random
import re
import time

import pytest

from mnnx.schema.ops import RuleError
from mnnx.schema.ops.regex import Pattern
from mnnx.schema.ops.text import RegexFullMatch


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"(www.[\w.-]+\.com)", "www.example.com", True),
        ("[[:alpha:]]+", "abc", True),
        ("[[:^alpha:]]+", "12", True),
        (r"\pL+", "éa", True),
        (r"\w", "é", False),
        (r"\Qa.b\E+", "a.bbb", True),
        ("(?i)ABC", "aBc", True),
        ("(?i:a)b", "AB", False),
        (".", "\n", False),
        ("(?s).", "\n", True),
        ("(?m)a$\n^b", "a\nb", True),
        ("a{,2}", "a{,2}", True),
        ("x{2,}?", "xxx", True),
        ("[]a]+", "]a", True),
        ("[^]a]", "b", True),
        (r"[\d-]+", "1-2", True),
        (r"\x41\x{e9}\101", "AéA", True),
        ("a|", "", True),
        (r"\bab\b", "ab", True),
        (r"a\Bb", "ab", True),
    ],
)
def test_syntax(pattern, text, matches):
    assert Pattern(pattern).full_match(text) == matches


@pytest.mark.parametrize(
    "pattern",
    [
        "a**",
        "(?=a)",
        r"\1",
        "[z-a]",
        "a{1001}",
        "(",
        "x)",
        "[a",
        "\\",
        "(?P<n",
        r"\p{Foo}",
        "[[:foo:]]",
        r"\x{110000}",
        "(" * 500 + ")" * 500,
    ],
)
def test_illegal_patterns_are_refused(pattern):
    with pytest.raises(RuleError, match="regular expression"):
        Pattern(pattern)


def test_an_op_with_an_illegal_pattern_is_refused():
    with pytest.raises(RuleError, match=r"regular expression '\(' is illegal"):
        RegexFullMatch(pattern="(")


@pytest.mark.parametrize("pattern", ["((a{1000}){1000}){1000}", "(((){1000}){1000}){1000}"])
def test_patterns_that_would_need_too_much_memory_are_refused(pattern):
    with pytest.raises(RuleError, match="too large"):
        Pattern(pattern)


def test_nested_repetitions_take_linear_time():
    start = time.process_time()
    assert not Pattern("(a*)*b").full_match("a" * 20_000)
    assert not Pattern("(x+x+)+y").full_match("x" * 20_000)
    assert time.process_time() - start < 5


def _generate(choose: random.Random, depth: int) -> str:
    atoms = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "[a-c1]", r"\b", "^", "$", r"\.", "(?:)", "A"]
    if depth == 0 or choose.random() < 0.35:
        return choose.choice(atoms)
    one, two = _generate(choose, depth - 1), _generate(choose, depth - 1)
    repetition = choose.choice(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])
    return choose.choice([one + two, f"(?:{one}|{two})", f"(?:{one}){repetition}", f"({one})"])


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_python_where_the_syntaxes_agree(seed):
    choose = random.Random(seed)
    for _ in range(50):
        pattern = _generate(choose, 4)
        python, ours = re.compile(pattern.replace("$", r"\Z"), re.ASCII), Pattern(pattern)
        for _ in range(8):
            text = "".join(choose.choice("abcA1.") for _ in range(choose.randint(0, 6)))
            assert ours.full_match(text) == bool(python.fullmatch(text)), (pattern, text)
