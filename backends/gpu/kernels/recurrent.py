"""The steps of recurrent networks (schema/ops/recurrent.py says what they compute).

Hidden units lie in vectors of `block`; `blocks` of them make a state. The states, in floats whatever the precision, are of up to four
kinds, each [directions, batch, blocks]: the hidden states before and after a step, which take turns; cell states (of GRU, whose reset
comes first: its update gates); and what stands for hidden states in the product with r (reset * hidden, or rounded ones). The inputs'
part of all gates is `gates` [rows of x, directions, gates, blocks].
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from mnnx.backends.gpu.constants import (
    ACTIVATIONS,
    INPUT_FORGET,
    LAST_C,
    LAST_H,
    LENGTHS,
    PEEPHOLES,
    RANGE_TEAM,
    SEQUENCE_ROWS,
    SHARED_DEPTH,
    SHARED_VECTORS,
    Y,
)
from mnnx.backends.gpu.epilogue import activate
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.quantization import SATURATED
from mnnx.backends.gpu.source import AHEAD_BLOCK, FLOATS, REPORT, Buffer, Source, lane, reads, writes

_PARAMS = (
    "int now, int steps, int batch, int directions, int hidden, int blocks, int batch_first, int first_reversed, int h_at, "
    "int r_block, int r_step, int r_gate, int flags, float clip, int f, float f_a, float f_b, int g, float g_a, float g_b"
)
_LSTM_PARAMS = ", int h, float h_a, float h_b"


class _Formula:
    """gates: those whose products with r a work item makes, from `first` on, of `all` gates."""

    def __init__(self, gates: int, cell: str, first: int = 0, all_gates: int = 0):
        self.gates, self.cell, self.first, self.all = gates, cell, first, all_gates or gates


# s0, s1, …: the products; x_at: where the inputs' part of the first gate lies; own: the state's place among those of a kind, `states` of
# them; made: the new hidden state
_FORMULAS = {
    "rnn": _Formula(1, "T made = apply(f, f_a, f_b, load_gates(x_at) + s0, clip);"),
    "gru": _Formula(
        3,
        """\
T z = apply(f, f_a, f_b, load_gates(x_at) + s0, clip), reset = apply(f, f_a, f_b, load_gates(x_at + blocks) + s1, clip);
        T fresh = apply(g, g_a, g_b, load_gates(x_at + 2 * blocks) + reset * (s2 + load_more(d * blocks + j)), clip);
        T made = fresh + z * (before - fresh);""",
    ),
    "gru reset": _Formula(
        2,
        """\
store_state(2 * states + own, apply(f, f_a, f_b, load_gates(x_at) + s0, clip));
        store_state(3 * states + own, before * apply(f, f_a, f_b, load_gates(x_at + blocks) + s1, clip));""",
        all_gates=3,
    ),
    "gru update": _Formula(
        1,
        """\
T fresh = apply(g, g_a, g_b, load_gates(x_at) + s0, clip);
        T made = fresh + load_state(2 * states + own) * (before - fresh);""",
        first=2,
        all_gates=3,
    ),
    "lstm": _Formula(
        4,
        """\
T c = load_state(2 * states + own), p_i = @0, p_o = p_i, p_f = p_i;
        if ((flags & @PEEPHOLES) != 0) {
            p_i = load_more(3 * d * blocks + j);
            p_o = load_more((3 * d + 1) * blocks + j);
            p_f = load_more((3 * d + 2) * blocks + j);
        }
        T i = apply(f, f_a, f_b, load_gates(x_at) + s0 + p_i * c, clip), keep = 1.0f - i;
        if ((flags & @INPUT_FORGET) == 0) keep = apply(f, f_a, f_b, load_gates(x_at + 2 * blocks) + s2 + p_f * c, clip);
        c = keep * c + i * apply(g, g_a, g_b, load_gates(x_at + 3 * blocks) + s3, clip);
        T made = apply(f, f_a, f_b, load_gates(x_at + blocks) + s1 + p_o * c, clip) * activate(h, h_a, h_b, c);
        if (on) store_state(2 * states + own, c);""",
    ),
}
_FLAGS = {"@PEEPHOLES": PEEPHOLES, "@INPUT_FORGET": INPUT_FORGET}


def _variants() -> Iterator[dict[str, Any]]:
    for formula, storage, (rows, shared) in itertools.product(_FORMULAS, FLOATS, ((1, True), (SEQUENCE_ROWS, False))):
        yield {"formula": formula, "storage": storage, "block": AHEAD_BLOCK, "rows": rows, "shared": shared}


def _lanes(block: int, name: str, at: str, value: str) -> str:
    """Stores those lanes of a vector that stand for hidden units."""
    lanes = (f"            if (j * {block} + {i} < hidden) store_{name}({at} + {i}, {value}{lane(block, i)});\n" for i in range(block))
    return "".join(lanes)


def _state(block: int, lstm: bool) -> str:
    """Stores `made`."""
    last_c = f"""\
        if (now == max(count - 1, 0) && (flags & {LAST_C}) != 0) {{
            T last = on ? c : @0;
{_lanes(block, "last_c", "last_at", "last")}        }}
"""
    return f"""\
        store_state((1 - now % 2) * states + own, on ? made : before);
        made = on ? made : @0;
        int last_at = (batch_first != 0 ? n * directions + d : d * batch + n) * hidden + j * {block};
        if ((flags & {Y}) != 0) {{
            int at = (batch_first != 0 ? (n * steps + time) * directions + d : (time * directions + d) * batch + n) * hidden + j * {block};
{_lanes(block, "y", "at", "made")}        }}
        if (now == max(count - 1, 0) && (flags & {LAST_H}) != 0) {{
{_lanes(block, "last_h", "last_at", "made")}        }}
{last_c if lstm else ""}"""


def _sums(rows: int, gates: int, shared: bool) -> str:
    """Adds the products of hidden states, from a<row> on, with the gates' part of r, from b on, to s<row>_<gate>."""
    chains = 4 // gates if rows == 1 and not shared else 1  # sums of one row by themselves would each wait for the one before
    lines = [f"    T s{r}_{g}_{i} = @0;" for r in range(rows) for g in range(gates) for i in range(chains)]

    def steps(count: int) -> list[str]:
        text = []
        for i in range(count):
            text += [f"        T w{g}_{i} = load_r(b + (k + {i}) * r_step + {g} * r_gate);" for g in range(gates)]
            for r in range(rows):
                text.append(f"        T h{r}_{i} = @(load_h(a{r} + k + {i}));")
                text += [f"        s{r}_{g}_{i % chains} = madd(h{r}_{i}, w{g}_{i}, s{r}_{g}_{i % chains});" for g in range(gates)]
        return text

    if shared:
        lines += [f"    for (int k = lid(1); k < hidden; k += {SHARED_DEPTH}) {{", *steps(1), "    }"]
    else:
        lines += ["    int k = 0;", f"    for (; k + {chains} <= hidden; k += {chains}) {{", *steps(chains), "    }"]
        if chains > 1:
            lines += ["    for (; k < hidden; k++) {", *steps(1), "    }"]
    for r, g in itertools.product(range(rows), range(gates)):
        lines.append(f"    results[{r * gates + g}] = {' + '.join(f's{r}_{g}_{i}' for i in range(chains))};")
    return "\n".join(lines)


def _fold(gates: int) -> str:
    """Adds up the results of the work items that share a sequence's product, of which the first one goes on."""
    place = f"(lid(1) * {gates} + {{}}) * {SHARED_VECTORS} + lid(0)"
    kept = "".join(f"    parts[{place.format(g)}] = results[{g}];\n" for g in range(gates))
    fetched = "".join(f"    results[{g}] = parts[{place.format(g)}];\n" for g in range(gates))
    return f"""\
{kept}    barrier_local();
    for (int half_of = {SHARED_DEPTH // 2}; half_of > 0; half_of /= 2) {{
        if (lid(1) < half_of) {{
            for (int g = 0; g < {gates}; g++) {{
                parts[{place.format("g")}] = parts[{place.format("g")}] + parts[{place.format(f"half_of * {gates} + g")}];
            }}
        }}
        barrier_local();
    }}
    if (lid(1) > 0 || j >= blocks) return;
{fetched}"""


def _buffers(formula: str, storage: str, block: int) -> tuple[Buffer, ...]:
    buffers = [reads("gates", storage, block), reads("r", storage, block), reads("h", "float"), writes("state", "float", block)]
    buffers += [reads("more", storage, block)] if formula in ("gru", "lstm") else []
    buffers += [reads("lengths", "int"), writes("y", storage), writes("last_h", storage)]
    return *buffers, *([writes("last_c", storage)] if formula == "lstm" else [])


def _typed(text: str, block: int) -> str:
    """The text with its vectors' type for T, and what makes such vectors for @."""
    return text.replace("T ", f"float{block} ").replace("@0", f"splat{block}(0.0f)").replace("@(", f"splat{block}(")


@kernel_factory("recurrent.step", _variants)
def step(formula: str, storage: str, block: int, rows: int, shared: bool) -> Source:
    """One step of all sequences and directions. r: [directions, …] vectors of `r_block`, `r_step` and `r_gate` from one to the next.

    A work item makes a vector of units of `rows` sequences. Work items: vectors, tiles of sequences, directions. `shared`: SHARED_DEPTH
    work items share a sequence's product: vectors, SHARED_DEPTH, directions × sequences.
    """
    chosen = _FORMULAS[formula]
    gates, lstm = chosen.gates, formula == "lstm"
    if shared:
        head = "int j = gid(0), d = gid(2) / batch, first_row = gid(2) % batch;"
    else:
        head = f"int j = gid(0), d = gid(2), first_row = gid(1) * {rows};\n    if (j >= blocks || first_row >= batch) return;"
    firsts = "\n".join(f"    int a{r} = h_at + (d * batch + min(first_row + {r}, batch - 1)) * blocks * {block};" for r in range(rows))
    head += f"""
    int b = (d * hidden * {chosen.all}) * blocks + min(j, blocks - 1) * r_block + {chosen.first} * r_gate;
    T results[{rows * gates}];
{firsts}
{_sums(rows, gates, shared)}
"""
    arrays: tuple[tuple[str, str, int], ...] = ()
    if shared:
        head += _fold(gates)
        arrays = ((f"float{block}", "parts", SHARED_VECTORS * SHARED_DEPTH * gates),)
    cell = chosen.cell
    for name, bit in _FLAGS.items():
        cell = cell.replace(name, str(bit))
    products = ", ".join(f"s{g} = results[r * {gates} + {g}]" for g in range(gates))
    body = f"""\
    {head}    int states = directions * batch * blocks;
    for (int r = 0; r < {rows}; r++) {{
        int n = first_row + r;
        if (n >= batch) continue;
        int count = (flags & {LENGTHS}) != 0 ? clamp(load_lengths(n), 0, steps) : steps;
        bool on = now < count;
        int time = on && d >= first_reversed ? count - 1 - now : now;
        int x_row = batch_first != 0 ? n * steps + time : time * batch + n;
        int x_at = ((x_row * directions + d) * {chosen.all} + {chosen.first}) * blocks + j, own = (d * batch + n) * blocks + j;
        T before = load_state(now % 2 * states + own), {products};
        {cell}
{"" if formula == "gru reset" else _state(block, lstm)}    }}"""
    functions = activate(block, ACTIVATIONS) + "T apply(int kind, float a, float b, T v, float clip) {\n"
    functions += "    return activate(kind, a, b, keep_nan(clamp(v, -clip, clip), v));\n}\n"
    params = _PARAMS + (_LSTM_PARAMS if lstm else "")
    group = (SHARED_VECTORS, SHARED_DEPTH, 1) if shared else (64, 1, 1)
    return Source(_buffers(formula, storage, block), params, _typed(body, block), _typed(functions, block), arrays, group)


@kernel_factory("recurrent.start", lambda: [{"storage": storage} for storage in FLOATS])
def start(storage: str) -> Source:
    """The initial states (of h and c, 0 where there are none) → those before the first step. Lengths outside 0 … steps are reported; the
    steps take them for the nearest legal ones. Work items: units up to `width`, sequences, directions."""
    body = f"""\
    int unit = gid(0), n = gid(1), d = gid(2);
    if (unit >= width || n >= batch) return;
    int from = (batch_first != 0 ? n * directions + d : d * batch + n) * hidden + unit, to = (d * batch + n) * width + unit;
    store_state(to, has_h != 0 && unit < hidden ? load_h(from) : 0.0f);
    if (has_cells != 0) store_state(2 * directions * batch * width + to, has_c != 0 && unit < hidden ? load_c(from) : 0.0f);
    if (has_lengths != 0 && unit == 0 && d == 0) {{
        int low = load_lengths(n), high = low < 0 ? -1 : 0;
        if (low < 0 || low > steps) {{ {REPORT} }}
    }}"""
    buffers = (reads("h", storage), reads("c", storage), writes("state", "float"), reads("lengths", "int"), writes("faults", "int"))
    params = (
        "int batch, int directions, int hidden, int width, int batch_first, int has_h, int has_c, int has_cells, int has_lengths, "
        "int steps, int slot"
    )
    return Source(buffers, params, body)


@kernel_factory("recurrent.round", lambda: [{}])
def rounded() -> Source:
    """Each direction's hidden states, from h_at on, rounded to 256 values as DynamicQuantizeLinear does → to_at. A work group for each."""
    body = f"""\
    int item = lid(0), first = group(0) * batch * width;
    float low = 0.0f, high = 0.0f;
    for (int e = item; e < batch * hidden; e += {RANGE_TEAM}) {{
        float v = load_state(h_at + first + e / hidden * width + e % hidden);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }}
    lows[item] = low;
    highs[item] = high;
    for (int half_of = {RANGE_TEAM // 2}; half_of > 0; half_of /= 2) {{
        barrier_local();
        if (item < half_of) {{
            lows[item] = min(lows[item], lows[item + half_of]);
            highs[item] = max(highs[item], highs[item + half_of]);
        }}
    }}
    barrier_local();
    low = lows[0];
    high = highs[0];
    float scale = low == high ? 1.0f : (high - low) / 255.0f;
    float zero = saturated(-low / scale, 0.0f, 0.0f, 255.0f);
    for (int e = item; e < batch * hidden; e += {RANGE_TEAM}) {{
        int at = first + e / hidden * width + e % hidden;
        store_state(to_at + at, (saturated(load_state(h_at + at) / scale, zero, 0.0f, 255.0f) - zero) * scale);
    }}"""
    shared = (("float", "lows", RANGE_TEAM), ("float", "highs", RANGE_TEAM))
    return Source(
        (writes("state", "float"),), "int h_at, int to_at, int batch, int hidden, int width", body, SATURATED, shared, (RANGE_TEAM, 1, 1)
    )
