"""Libraries of functions in C, of which a kernel gets those that it calls."""

from __future__ import annotations

import re

_WORD = re.compile(r"\b[A-Za-z_]\w*")


class Library:
    """`text`: functions that begin in the first column, each after those that it calls."""

    def __init__(self, text: str):
        self._functions = {re.match(r"\w+ (\w+)\(", one)[1]: one.rstrip() for one in re.split(r"\n(?=\w)", text.strip())}
        self._words = {name: set(_WORD.findall(one)) for name, one in self._functions.items()}

    def used_by(self, text: str) -> str:
        """The functions that `text` names, and those that they call."""
        wanted = set(_WORD.findall(text))
        chosen = []
        for name in reversed(self._functions):
            if name in wanted:
                chosen.append(name)
                wanted |= self._words[name]
        return "".join(f"{self._functions[name]}\n" for name in reversed(chosen))
