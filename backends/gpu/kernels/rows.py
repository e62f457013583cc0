"""What kernels over rows share.

A tensor is seen as [outer, count, inner] in vectors of `width` elements; a row is one of its outer × inner columns of `count` vectors.
`along`: the lanes of a vector are neighbours in the row (inner is then 1), so that they end up in one number; otherwise each lane is a
row of its own. `team` work items share a row.
"""

from __future__ import annotations

from mnnx.backends.gpu.constants import TEAM, TERMS
from mnnx.backends.gpu.source import lane


def vector(width: int) -> str:
    return "float" if width == 1 else f"float{width}"


def splat(width: int, value: str) -> str:
    return f"({value})" if width == 1 else f"splat{width}({value})"


def result_width(width: int, along: bool) -> int:
    """The lanes of what a row is reduced to."""
    return 1 if along else width


def start(team: int) -> str:
    """Declares row, me (the work item's place in the team) and base (the index of the row's first vector)."""
    head = "    int row = gid(0), me = 0;\n    if (row >= rows) return;\n" if team == 1 else "    int row = group(0), me = lid(0);\n"
    return f"{head}    int base = row / inner * count * inner + row % inner;\n"


def each(team: int, body: str) -> str:
    """Runs the body for this work item's share of the row: k, with x the vector's index."""
    return f"    for (int k = me; k < count; k += {team}) {{\n        int at = base + k * inner;\n{body}    }}\n"


def total(name: str, width: int, team: int, term: str, read: str = "") -> str:
    """Declares the vector `name`, the sum of `term` (of v, a vector of the row) over this work item's share.

    `read`: statements that declare v, the row's vector k, where it isn't just read from x.
    """
    t = vector(width)
    read = read or f"            {t} v = load_x(base + k * inner);\n"
    return f"""\
    {t} {name} = {splat(width, "0.0f")};
    for (int k0 = me; k0 < count; k0 += {team * TERMS}) {{
        {t} part = {splat(width, "0.0f")};
        int end = min(count, k0 + {team * TERMS});
        for (int k = k0; k < end; k += {team}) {{
{read}            part = part + {term};
        }}
        {name} = {name} + part;
    }}
"""


def folded(name: str, width: int, function: str) -> str:
    """The lanes of a vector as one number: by an operator, or a function of two numbers."""
    terms = [f"{name}{lane(width, i)}" for i in range(width)] if width > 1 else [name]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=True)
        terms = [f"({a} {function} {b})" if function in "+*" else f"{function}({a}, {b})" for a, b in pairs]
    return terms[0]


def shared_result(name: str, source: str, width: int, along: bool, team: int, function: str) -> str:
    """Declares `name`, what the team's vectors `source` come to, for all of the team."""
    lanes = result_width(width, along)
    value = folded(source, width, function) if along else source
    if team == 1:
        return f"    {vector(lanes)} {name} = {value};\n"
    a, b = "shares[me]", "shares[me + half_of]"
    both = f"{a} + {b}" if function == "+" else f"{function}({a}, {b})"
    return f"""\
    shares[me] = {value};
    barrier_local();
    for (int half_of = {team // 2}; half_of > 0; half_of /= 2) {{
        if (me < half_of) shares[me] = {both};
        barrier_local();
    }}
    {vector(lanes)} {name} = shares[0];
    barrier_local();
"""


def shares(width: int, along: bool, team: int) -> tuple[tuple[str, str, int], ...]:
    """The shared memory of `shared_result`."""
    return () if team == 1 else ((vector(result_width(width, along)), "shares", team),)


def local(team: int) -> tuple[int, int, int]:
    return (TEAM, 1, 1)


#: (width, along) of a block of that many lanes: what rows there are.
def forms(block: int) -> tuple[tuple[int, bool], ...]:
    return ((1, False), (block, False), (block, True))
