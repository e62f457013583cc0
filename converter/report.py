"""What a conversion did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mnnx.converter.graph import Graph
from mnnx.schema.model import Dim, Range, dims_text, range_text
from mnnx.schema.text import size


@dataclass(frozen=True)
class PassResult:
    """How often each rewrite of a pass was applied."""

    name: str
    counts: dict[str, int]
    seconds: float

    @property
    def total(self) -> int:
        return sum(self.counts.values())


#: The reason that a pass does nothing at any node of an op type.
NOT_CONCERNED = "nothing in it starts from this op"


@dataclass(frozen=True)
class Explanation:
    """What a pass did at a node, or why one of its rules (or the pass, where it has none) did nothing."""

    by_pass: str
    node: str  # empty where it is said of all nodes of the op, or of the pass
    op: str
    rule: str  # empty where it isn't about one
    reason: str


@dataclass(frozen=True)
class ConversionReport:
    """Returned by `convert`; prints as a table. Op counts include those of subgraphs."""

    source: str
    target: str
    level: int
    ops_before: Counter[str]
    ops_after: Counter[str]
    passes: list[PassResult]
    dynamic_dims: dict[str, tuple[Dim, ...]]  # inputs with open dims
    source_bytes: int
    target_bytes: int
    seconds: float
    ranges: dict[str, Range] = field(default_factory=dict)  # of names in dynamic_dims: the smallest and the largest size (None: no limit)
    explanations: list[Explanation] = field(default_factory=list)  # of the node that `explain` asks for, in the order of the passes

    def __str__(self) -> str:
        dynamic = [f"{name} {dims_text(dims)}" for name, dims in self.dynamic_dims.items()] or ["nothing: every input shape is fixed"]
        rows = [
            ("model", f"{self.source} → {self.target}"),
            ("ops", f"{self.ops_before.total()} → {self.ops_after.total()} (level {self.level})"),
            ("size", f"{size(self.source_bytes)} → {size(self.target_bytes)}"),
            *((f"dim {name}", range_text(*limits)) for name, limits in self.ranges.items()),
            *zip(["dynamic", *[""] * (len(dynamic) - 1)], dynamic, strict=True),
            ("time", f"{self.seconds:.2f} s"),
        ]
        applied = [p for p in self.passes if p.total]
        if applied:
            rows.insert(2, ("passes", ", ".join(f"{p.name} {p.total}" for p in applied)))
        return _table(rows)

    def details(self) -> str:
        """What each pass did, one line per kind of rewrite; passes that found nothing to do are left out."""
        lines = []
        for result in (p for p in self.passes if p.total):
            lines.append(f"{result.name}: {result.total} in {result.seconds * 1e3:.0f} ms")
            lines += [f"  {count:5d}  {what}" for what, count in sorted(result.counts.items())]
        return "\n".join(lines)

    def explanation(self) -> str:
        """The explanations, one line each; the passes that an op doesn't concern at the end, in one line."""
        lines, heading = [], None
        others: dict[str, list[str]] = {}
        for one in self.explanations:
            if one.reason == NOT_CONCERNED:
                others.setdefault(one.op, []).append(one.by_pass)
                continue
            if (one.by_pass, one.node) != heading:
                heading = one.by_pass, one.node
                lines.append(f"{one.by_pass}, at {one.op} {one.node!r}:" if one.node else f"{one.by_pass}:")
            lines.append(f"  {one.rule}: {one.reason}" if one.rule else f"  {one.reason}")
        lines += [f"nothing starts from {op} in {', '.join(passes)}" for op, passes in others.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class ExtractionReport:
    """Returned by `extract`; prints as a table. Ops include those of subgraphs; inputs and outputs: name → dtype and shape, as text."""

    source: str
    target: str
    ops: Counter[str]
    inputs: dict[str, str]
    outputs: dict[str, str]
    target_bytes: int

    def __str__(self) -> str:
        rows = [("model", f"{self.source} → {self.target}"), ("ops", str(self.ops.total())), ("size", size(self.target_bytes))]
        for title, tensors in (("input", self.inputs), ("output", self.outputs)):
            rows += [(title, f"{name} {kind}") for name, kind in tensors.items()]
        return _table(rows)


def count_ops(graph: Graph) -> Counter[str]:
    """Ops by name, those of subgraphs included."""
    return Counter(node.op.name for g in [graph, *graph.subgraphs()] for node in g.nodes)


def _table(rows: list[tuple[str, str]]) -> str:
    """Rows of a name and a text, the texts one below the other."""
    width = max(len(key) for key, _ in rows)
    return "\n".join(f"{key:<{width}}  {text}" for key, text in rows)
