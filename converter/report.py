"""What a conversion did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mnnx.schema.model import Dim, dims_text
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


@dataclass(frozen=True)
class Explanation:
    """What a pass did at a node, or why one of its rules (or the pass, where it has none) did nothing."""

    by_pass: str
    node: str
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
    explanations: list[Explanation] = field(default_factory=list)  # of the node that `explain` asks for, in the order of the passes

    def __str__(self) -> str:
        dynamic = [f"{name} {dims_text(dims)}" for name, dims in self.dynamic_dims.items()] or ["nothing: every input shape is fixed"]
        rows = [
            ("model", f"{self.source} → {self.target}"),
            ("ops", f"{self.ops_before.total()} → {self.ops_after.total()} (level {self.level})"),
            ("size", f"{size(self.source_bytes)} → {size(self.target_bytes)}"),
            *zip(["dynamic", *[""] * (len(dynamic) - 1)], dynamic, strict=True),
            ("time", f"{self.seconds:.2f} s"),
        ]
        applied = [p for p in self.passes if p.total]
        if applied:
            rows.insert(2, ("passes", ", ".join(f"{p.name} {p.total}" for p in applied)))
        width = max(len(key) for key, _ in rows)
        return "\n".join(f"{key:<{width}}  {text}" for key, text in rows)

    def details(self) -> str:
        """What each pass did, one line per kind of rewrite; passes that found nothing to do are left out."""
        lines = []
        for result in (p for p in self.passes if p.total):
            lines.append(f"{result.name}: {result.total} in {result.seconds * 1e3:.0f} ms")
            lines += [f"  {count:5d}  {what}" for what, count in sorted(result.counts.items())]
        return "\n".join(lines)

    def explanation(self) -> str:
        """The explanations, one line each."""
        lines, heading = [], None
        for one in self.explanations:
            if (one.by_pass, one.node) != heading:
                heading = one.by_pass, one.node
                lines.append(f"{one.by_pass}, at {one.op} {one.node!r}:" if one.node else f"{one.by_pass}:")
            lines.append(f"  {one.rule}: {one.reason}" if one.rule else f"  {one.reason}")
        return "\n".join(lines)
