"""The functions of expressions in GLSL."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TEXT = """
float m_abs(float x) { return abs(x); }
float m_floor(float x) { return floor(x); }
float m_ceil(float x) { return ceil(x); }
float m_round(float x) { return roundEven(x); }
float m_sqrt(float x) { return sqrt(x); }
float m_exp(float x) { return exp(x); }
float m_log(float x) { return log(x); }
float m_sin(float x) { return sin(x); }
float m_cos(float x) { return cos(x); }
float m_tan(float x) { return tan(x); }
"""


def _split(text: str) -> dict[str, str]:
    """Name → text, of functions that begin in the first column."""
    return {re.match(r"\w+ (\w+)\(", one)[1]: one for one in re.split(r"\n(?=\w)", text.strip())}


FUNCTIONS = _split(_TEXT)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_USES = {name: [word for word in _WORD.findall(text) if word in FUNCTIONS and word != name] for name, text in FUNCTIONS.items()}


def functions_for(words: Iterable[str]) -> str:
    """The text of those functions that are among `words`, and of what they call, callees first."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name in FUNCTIONS and name not in found:
            for other in _USES[name]:
                add(other)
            found[name] = None

    for word in words:
        add(word)
    return "".join(f"{FUNCTIONS[name]}\n" for name in found)
