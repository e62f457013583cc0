"""Regular expressions in RE2's syntax, matched in time linear in the text: no pattern can make it hang.

A pattern is parsed to a tree, compiled to a nondeterministic automaton (Thompson's construction), and run by keeping the set of its live
states (R. Cox, "Regular Expression Matching Can Be Simple And Fast", 2007). Syntax: https://github.com/google/re2/wiki/Syntax. Left out:
script names in \\p{…}, and \\C.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache

from mnnx.schema.ops.base import require

Predicate = Callable[[str], bool]
Flags = frozenset[str]

_MAX_STATES = 10_000
_MAX_DEPTH = 100
_MAX_REPEAT = 1000
_MAX_CACHED = 1_000_000  # states in the cached sets

_PERL = {"d": "0-9", "s": "\t\n\f\r ", "w": "0-9A-Za-z_"}
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\x00-\x7f",
    "blank": "\t ",
    "cntrl": "\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@[-`{-~",
    "space": "\t-\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


@cache
def _categories() -> frozenset[str]:
    """Names of Unicode's general categories, and of their groups."""
    fine = {unicodedata.category(chr(code)) for code in range(0x3000)} | {"Co", "Cs"}
    return frozenset(fine | {name[0] for name in fine})


def _ranges(text: str) -> list[tuple[str, str]]:
    """ "a-z_" → [("a", "z"), ("_", "_")]."""
    result, i = [], 0
    while i < len(text):
        wide = text[i + 1 : i + 2] == "-" and i + 2 < len(text)
        result.append((text[i], text[i + 2] if wide else text[i]))
        i += 3 if wide else 1
    return result


def _in_ranges(ranges: list[tuple[str, str]]) -> Predicate:
    return lambda c: any(low <= c <= high for low, high in ranges)


def _any_of(members: list[Predicate], negated: bool) -> Predicate:
    return lambda c: any(member(c) for member in members) != negated


def _ignoring_case(member: Predicate) -> Predicate:
    return lambda c: member(c) or member(c.lower()) or member(c.upper()) if len(c.lower()) == len(c.upper()) == 1 else member(c)


def _is_word(c: str) -> bool:
    return c.isascii() and (c.isalnum() or c == "_")


def _chars(members: list[Predicate], flags: Flags, negated: bool = False) -> tuple:
    """The node that matches one character that is (or isn't) in any of the members."""
    if "i" in flags:
        members = [_ignoring_case(member) for member in members]
    return "chars", _any_of(members, negated)


class _Parser:
    """Recursive descent over a pattern. The nodes of the tree are

    ("chars", predicate), ("assert", kind), ("cat", nodes), ("or", nodes) and ("repeat", node, least, most or None).
    """

    def __init__(self, pattern: str):
        self.text = pattern
        self.at = 0
        self.depth = 0

    def parse(self) -> tuple:
        node = self.alternatives(frozenset())
        if self.at < len(self.text):
            self.fail("there is a ) too many")
        return node

    def fail(self, what: str) -> None:
        require(False, f"the regular expression {self.text!r} is illegal at {self.at}: {what}")

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        if self.at >= len(self.text):
            self.fail("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def accept(self, token: str) -> bool:
        found = self.text.startswith(token, self.at)
        self.at += len(token) * found
        return found

    def until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            self.fail(f"{end!r} is missing")
        found, self.at = self.text[self.at : stop], stop + len(end)
        return found

    def alternatives(self, flags: Flags) -> tuple:
        branches, items = [], []
        while self.peek() not in ("", ")"):
            if self.accept("|"):
                branches.append(("cat", items))
                items = []
            elif self.text.startswith("(?", self.at) and self.text[self.at + 2 : self.at + 3] not in ("P", "<", ":"):
                self.at += 2
                flags_inside, ends = self.flags(flags)
                if ends == ")":
                    flags = flags_inside
                else:
                    items.append(self.repeated(self.group(flags_inside)))
            elif self.accept(r"\Q"):
                end = self.text.find(r"\E", self.at)
                quoted = self.text[self.at : end] if end >= 0 else self.text[self.at :]
                self.at += len(quoted) + 2 * (end >= 0)
                items += [_chars([_in_ranges([(c, c)])], flags) for c in quoted]
                if quoted:
                    items.append(self.repeated(items.pop()))
            else:
                items.append(self.repeated(self.atom(flags)))
        branches.append(("cat", items))
        return branches[0] if len(branches) == 1 else ("or", branches)

    def flags(self, flags: Flags) -> tuple[Flags, str]:
        """The flags after `(?`, and what ends them: `)`, or `:` where they hold for the group alone."""
        on = True
        while (c := self.take()) not in "):":
            if c == "-" and on:
                on = False
            elif c in "imsU":
                flags = flags | {c} if on else flags - {c}
            else:
                self.fail(f"(?{c} is unknown")
        return flags, c

    def group(self, flags: Flags) -> tuple:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"groups are nested deeper than {_MAX_DEPTH}")
        node = self.alternatives(flags)
        if not self.accept(")"):
            self.fail("a ) is missing")
        self.depth -= 1
        return node

    def repeated(self, node: tuple) -> tuple:
        bounds = self.repetition()
        if bounds is None:
            return node
        self.accept("?")  # lazy or greedy: a full match is the same
        if self.peek() in ("*", "+", "?") or self.repetition() is not None:
            self.fail("a repetition is repeated")
        return "repeat", node, *bounds

    def repetition(self) -> tuple[int, int | None] | None:
        for token, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.accept(token):
                return bounds
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        least, comma, most = self.text[self.at + 1 : max(end, self.at + 1)].partition(",")
        if not (least.isascii() and least.isdigit()) or (most and not (most.isascii() and most.isdigit())):
            return None  # such a brace stands for itself
        low = int(least[:9])
        high = int(most[:9]) if most else None if comma else low
        if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
            self.fail(f"a repetition must be in 0 … {_MAX_REPEAT}, its bounds in order")
        self.at = end + 1
        return low, high

    def atom(self, flags: Flags) -> tuple:
        c = self.take()
        if c == "(":
            if self.accept("?P<") or self.accept("?<"):
                if not self.until(">").isidentifier():
                    self.fail("a group's name must be an identifier; there is no look-around")
            elif not self.accept("?:") and self.peek() == "?":
                self.fail("this kind of group is unknown")
            return self.group(flags)
        if c == ".":
            return "chars", (lambda c: True) if "s" in flags else (lambda c: c != "\n")
        if c == "[":
            return self.char_class(flags)
        if c == "^":
            return "assert", "line start" if "m" in flags else "start"
        if c == "$":
            return "assert", "line end" if "m" in flags else "end"
        if c in "*+?":
            self.fail("there is nothing to repeat")
        if c == "\\":
            kinds = {"A": "start", "z": "end", "b": "word edge", "B": "no word edge"}
            if self.peek() in kinds:
                return "assert", kinds[self.take()]
            return _chars([self.escape()[0]], flags)
        return _chars([_in_ranges([(c, c)])], flags)

    def escape(self) -> tuple[Predicate, str | None]:
        """What stands after a backslash: its predicate, and the character where it is a single one."""
        c = self.take()
        if c.lower() in _PERL:
            return _any_of([_in_ranges(_ranges(_PERL[c.lower()]))], negated=c.isupper()), None
        if c in "pP":
            name = self.until("}") if self.accept("{") else self.take()
            negated = (c == "P") != name.startswith("^")
            name = name.removeprefix("^")
            if name not in _categories() and name != "Any":
                self.fail(f"the character class {name!r} is unknown")
            return (lambda c: (name == "Any" or unicodedata.category(c).startswith(name)) != negated), None
        if c in _ESCAPES:
            single = _ESCAPES[c]
        elif c == "x":
            digits = self.until("}") if self.accept("{") else self.take() + self.take()
            single = self.code(digits, 16)
        elif c in "01234567" and (c == "0" or self.peek() in tuple("01234567")):
            while self.peek() in tuple("01234567") and len(c) < 3:
                c += self.take()
            single = self.code(c, 8)
        elif c.isascii() and c.isalnum():
            self.fail(f"the escape \\{c} is unknown")
        else:
            single = c
        return _in_ranges([(single, single)]), single

    def code(self, digits: str, base: int) -> str:
        try:
            return chr(int(digits, base))
        except (ValueError, OverflowError):
            self.fail(f"{digits!r} isn't the number of a character")

    def char_class(self, flags: Flags) -> tuple:
        negated = self.accept("^")
        members: list[Predicate] = []
        first = True
        while first or self.peek() != "]":
            first = False
            if self.accept("[:"):
                name = self.until(":]")
                if name.removeprefix("^") not in _POSIX:
                    self.fail(f"the character class {name!r} is unknown")
                members.append(_any_of([_in_ranges(_ranges(_POSIX[name.removeprefix("^")]))], negated=name.startswith("^")))
                continue
            c = self.take()
            member, low = self.escape() if c == "\\" else (_in_ranges([(c, c)]), c)
            if low is not None and self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.take()
                c = self.take()
                high = self.escape()[1] if c == "\\" else c
                if high is None or high < low:
                    self.fail("a range in a character class has no end, or ends before it starts")
                member = _in_ranges([(low, high)])
            members.append(member)
        self.take()
        return _chars(members, flags, negated)


class Pattern:
    """A compiled regular expression. Raises RuleError where it is illegal, or larger than any sane one."""

    def __init__(self, text: str):
        # States: ("chars", predicate, next), ("assert", kind, next), ("split", nexts), and the last one reached, "match".
        self._program: list[tuple] = [("match",)]
        self._work = 0
        self._start = self._emit(_Parser(text).parse(), 0)
        self._asserts = any(state[0] == "assert" for state in self._program)
        self._cache: dict[tuple, frozenset[int]] = {}
        self._cached = 0

    def full_match(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        states, before = frozenset([self._start]), ""
        for c in text:
            states = self._following(states, before, c)
            if not states:
                return False
            before = c
        return 0 in self._closure(states, before, "")

    def longest_match(self, text: str, start: int) -> int | None:
        """Where the longest match that begins at `start` ends; None where none does."""
        states, before, end = frozenset([self._start]), text[start - 1 : start], None
        for at in range(start, len(text) + 1):
            after = text[at : at + 1]
            if 0 in self._closure(states, before, after):
                end = at
            states = self._following(states, before, after) if after else frozenset()
            if not states:
                break
            before = after
        return end

    def _following(self, states: frozenset[int], before: str, c: str) -> frozenset[int]:
        """The states behind the character c, which `before` precedes."""
        key = (states, before if self._asserts else "", c)
        following = self._cache.get(key)
        if following is None:
            if self._cached > _MAX_CACHED:
                self._cache.clear()
                self._cached = 0
            following = self._cache[key] = self._step(states, before, c)
            self._cached += len(following) + 1
        return following

    def _add(self, *state: object) -> int:
        self._program.append(state)
        return len(self._program) - 1

    def _emit(self, node: tuple, following: int) -> int:
        """Adds the states that match `node` and go on to `following`; returns the first one."""
        self._work += 1
        require(self._work < 4 * _MAX_STATES and len(self._program) < _MAX_STATES, "the regular expression is too large")
        kind = node[0]
        if kind in ("chars", "assert"):
            return self._add(kind, node[1], following)
        if kind == "cat":
            for part in reversed(node[1]):
                following = self._emit(part, following)
            return following
        if kind == "or":
            return self._add("split", tuple(self._emit(part, following) for part in node[1]))
        _, part, least, most = node
        start = following
        if most is None:
            start = self._add("split", ())
            self._program[start] = ("split", (self._emit(part, start), following))
        for _ in range(0 if most is None else most - least):
            start = self._add("split", (self._emit(part, start), following))
        for _ in range(least):
            start = self._emit(part, start)
        return start

    def _step(self, states: frozenset[int], before: str, c: str) -> frozenset[int]:
        program = self._program
        live = self._closure(states, before, c)
        return frozenset(program[s][2] for s in live if program[s][0] == "chars" and program[s][1](c))

    def _closure(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """All states that are reached without a character, between these two (empty: an end of the text)."""
        reached, stack = set(states), list(states)
        while stack:
            state = self._program[stack.pop()]
            if state[0] == "split":
                nexts = state[1]
            elif state[0] == "assert" and _holds(state[1], before, after):
                nexts = (state[2],)
            else:
                continue
            for following in nexts:
                if following not in reached:
                    reached.add(following)
                    stack.append(following)
        return reached


@lru_cache(maxsize=16)
def compiled(text: str) -> Pattern:
    """The Pattern of a text; those of the last few are kept. Raises RuleError where it is illegal."""
    return Pattern(text)


def _holds(kind: str, before: str, after: str) -> bool:
    if kind == "start":
        return not before
    if kind == "end":
        return not after
    if kind == "line start":
        return before in ("", "\n")
    if kind == "line end":
        return after in ("", "\n")
    edge = bool(before and _is_word(before)) != bool(after and _is_word(after))
    return edge == (kind == "word edge")
