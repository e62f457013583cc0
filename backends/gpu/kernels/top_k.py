"""The largest or smallest elements of rows [outer, count, inner], in order.

Two kernels, both without writes that meet: `select` finds the k-th key of a row two bits at a time, by counting, and lists the places of
what is among the first k; `rank` puts each of these where the number of better ones says.
"""

from __future__ import annotations

import itertools

from mnnx.backends.gpu.constants import DIGIT_BITS, TEAM
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.rows import start
from mnnx.backends.gpu.source import FLOATS, Source, reads, writes

STORAGES = (*FLOATS, "int")


def _key(storage: str) -> str:
    """`key_of(v, flip)`: larger for what comes first; all NaN are alike and larger than the rest. flip: 0, or -1 for the smallest."""
    if storage == "int":
        return "uint key_of(int v, int flip) { return to_uint(v ^ flip) ^ 0x80000000u; }\n"
    return """\
uint key_of(float v, int flip) {
    int bits = bits_of(v);
    int size = bits & 0x7fffffff;
    if (size > 0x7f800000) return to_uint(flip ^ -1);
    uint key = bits < 0 ? 0x80000000u - to_uint(size) : 0x80000000u + to_uint(bits);
    return flip != 0 ? ~key : key;
}
"""


def _add_up(team: int, choices: range) -> str:
    """Makes each work item's n<choice> the sum of the whole team's."""
    summed = "".join(f"        shares{c}[me] = n{c};\n" for c in choices)
    added = "".join(f"                shares{c}[me] += shares{c}[me + half_of];\n" for c in choices)
    fetched = "".join(f"        n{c} = shares{c}[0];\n" for c in choices)
    return f"""\
{summed}        barrier_local();
        for (int half_of = {team // 2}; half_of > 0; half_of /= 2) {{
            if (me < half_of) {{
{added}            }}
            barrier_local();
        }}
{fetched}        barrier_local();
"""


def _count_before(team: int) -> str:
    """Adds up `more` and `alike` of the team's work items before this one in more_before and alike_before, `more` of all in all_more."""
    if team == 1:
        return "    int more_before = 0, alike_before = 0, all_more = more;\n"
    return f"""\
    shares1[me] = more;
    shares2[me] = alike;
    barrier_local();
    int more_before = 0, alike_before = 0, all_more = 0;
    for (int other = 0; other < {team}; other++) {{
        if (other < me) {{
            more_before += shares1[other];
            alike_before += shares2[other];
        }}
        all_more += shares1[other];
    }}
"""


@kernel_factory("top_k.select", lambda: [{"storage": s, "team": team} for s, team in itertools.product(STORAGES, (1, TEAM))])
def select(storage: str, team: int) -> Source:
    """places [rows, k]: where in its row each of the k best elements lies, from the first on. Work items: rows × team."""
    choices = range(1, 1 << DIGIT_BITS)
    counts = "".join(f"            n{c} += key >= (least | ({c}u << to_uint(bit))) ? 1 : 0;\n" for c in choices)
    declared = ", ".join(f"n{c} = 0" for c in choices)
    chosen = "".join(f"        if (n{c} >= k) digit = {c}u;\n" for c in choices)
    body = f"""\
{start(team)}    uint least = 0u;
    for (int bit = {32 - DIGIT_BITS}; bit >= 0; bit -= {DIGIT_BITS}) {{
        int {declared};
        for (int j = me; j < count; j += {team}) {{
            uint key = key_of(load_x(base + j * inner), flip);
{counts}        }}
{_add_up(team, choices) if team > 1 else ""}        uint digit = 0u;
{chosen}        least = least | (digit << to_uint(bit));
    }}
    int share = (count + {team - 1}) / {team}, first = min(count, me * share), last = min(count, first + share), more = 0, alike = 0;
    for (int j = first; j < last; j++) {{
        uint key = key_of(load_x(base + j * inner), flip);
        if (key > least) more += 1;
        if (key == least) alike += 1;
    }}
{_count_before(team)}\
    int spare = k - all_more, to = row * k + more_before + min(alike_before, spare), seen = alike_before;
    for (int j = first; j < last; j++) {{
        uint key = key_of(load_x(base + j * inner), flip);
        bool taken = key > least || (key == least && seen < spare);
        if (key == least) seen += 1;
        if (taken) {{
            store_places(to, j);
            to += 1;
        }}
    }}"""
    arrays = tuple(("int", f"shares{c}", TEAM) for c in choices) if team > 1 else ()
    buffers = (reads("x", storage), writes("places", "int"))
    return Source(buffers, "int rows, int count, int inner, int k, int flip", body, _key(storage), arrays, (TEAM, 1, 1))


@kernel_factory("top_k.rank", lambda: [{"storage": storage} for storage in STORAGES])
def rank(storage: str) -> Source:
    """values and indices (of int64) [outer, k, inner], in order: each of the `among` candidates of a row that fewer than k others come
    before. listed: 1 where places [rows, among] say where they lie; 0: they are the whole row. Work items: rows × among."""
    kind = "int" if storage == "int" else "float"
    body = f"""\
    int item = gid(0);
    if (item >= rows * among) return;
    int row = item / among, me = item % among, list = row * among;
    int base = row / inner * count * inner + row % inner;
    int place = listed != 0 ? load_places(list + me) : me;
    {kind} value = load_x(base + place * inner);
    uint mine = key_of(value, flip);
    int before = 0;
    for (int j = 0; j < among; j++) {{
        int other = listed != 0 ? load_places(list + j) : j;
        uint key = key_of(load_x(base + other * inner), flip);
        before += key > mine || (key == mine && j < me) ? 1 : 0;
    }}
    if (before >= k) return;
    int to = (row / inner * k + before) * inner + row % inner;
    store_values(to, value);
    store_indices(2 * to, place);
    store_indices(2 * to + 1, 0);"""
    buffers = (reads("x", storage), reads("places", "int"), writes("values", storage), writes("indices", "int"))
    return Source(buffers, "int rows, int count, int inner, int among, int k, int listed, int flip", body, _key(storage))
