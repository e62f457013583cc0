"""What a pass is, and the rewrite rules that most passes are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.dims import rank_of
from mnnx.errors import ConversionError, MnnxError
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.shape import Identity


class Pass(ABC):
    """A change of a whole graph. `level` is the lowest optimisation level that runs it; its docstring's first line says what it does."""

    name: str
    level: int = 1

    @abstractmethod
    def run(self, graph: Graph, counts: Counter[str]) -> None:
        """Rewrites `graph`, and counts what it does; its subgraphs get calls of their own."""

    @abstractmethod
    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        """Why it does nothing at a node of a graph that it has run on: what it could have done there, and why it doesn't."""

    @classmethod
    def description(cls) -> str:
        """What the pass does, in a line."""
        return cls.__doc__.splitlines()[0].rstrip(".")


class Watcher:
    """Is told of the passes that run on a graph. It may look, but must not touch."""

    def before(self, number: int, one: Pass, graph: Graph) -> None:
        """A pass, the `number`th of all, is going to run."""

    def after(self, number: int, one: Pass, graph: Graph) -> None:
        """It has run, on the graph and its subgraphs."""

    def skipped(self, one: Pass, why: str) -> None:
        """A pass doesn't run."""


class Rule(ABC):
    """A local rewrite that starts from a node of one of the `ops`. Nodes that it leaves without users are swept by the dead code pass."""

    name: str
    ops: tuple[type[Op], ...]

    @abstractmethod
    def match(self, node: Node, graph: Graph) -> str | None:
        """None where the rule applies to `node`, which has inputs and is one of the `ops`; else the reason why not."""

    @abstractmethod
    def rewrite(self, node: Node, graph: Graph) -> None:
        """Applies the rule to a node that matched."""

    def apply(self, node: Node, graph: Graph) -> bool:
        """Rewrites a node of the graph where the rule applies to it; whether it did."""
        if self.match(node, graph) is not None or node not in graph.nodes:
            return False
        self.rewrite(node, graph)
        return True


class SearchRule(Rule):
    """A rule that finds by searching what it needs for the rewrite, or why it doesn't apply. It searches once."""

    @abstractmethod
    def find(self, node: Node, graph: Graph) -> Any:
        """What `rewrite_found` takes, or the reason (a str) why the rule doesn't apply."""

    @abstractmethod
    def rewrite_found(self, node: Node, graph: Graph, found: Any) -> None:
        """Applies the rule to a node for which this was found."""

    def match(self, node: Node, graph: Graph) -> str | None:
        found = self.find(node, graph)
        return found if isinstance(found, str) else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        self.rewrite_found(node, graph, self.find(node, graph))

    def apply(self, node: Node, graph: Graph) -> bool:
        found = self.find(node, graph)
        if isinstance(found, str) or node not in graph.nodes:
            return False
        self.rewrite_found(node, graph, found)
        return True


class RulePass(Pass):
    """Applies a list of rules to every node until none matches."""

    rules: tuple[Rule, ...]

    def __init__(self) -> None:
        self._starting: dict[type[Op], list[Rule]] = {}  # the rules that start from an op

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        changed = True
        while changed:
            changed = False
            for node in list(graph.nodes):
                for rule in self._rules(node):
                    if node.inputs and self._apply(rule, node, graph):
                        counts[rule.name] += 1
                        changed = True

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        for rule in self._rules(node) if node.inputs else ():
            if (reason := rule.match(node, graph)) is not None:
                yield rule.name, reason

    def _rules(self, node: Node) -> list[Rule]:
        """Those that start from nodes of this kind."""
        op = type(node.op)
        if op not in self._starting:
            self._starting[op] = [rule for rule in self.rules if issubclass(op, rule.ops)]
        return self._starting[op]

    def _apply(self, rule: Rule, node: Node, graph: Graph) -> bool:
        try:
            return rule.apply(node, graph)
        except MnnxError:
            raise
        except Exception as error:  # a rule may rely on what holds for every legal node
            raise ConversionError(f"node {node.name!r} ({node.op.name}) is broken: {error or type(error).__name__}") from error


def is_pure(op: Op) -> bool:
    """Whether equal inputs give equal results, computed in one go: neither random nor control flow."""
    return op.deterministic and not op.subgraphs


def scalar(value: Value | None, beside: Value | None = None) -> float | None:
    """The value of a constant of one element as a float, else None. `beside` another value it must not be of a higher rank than that."""
    if value is None or value.constant is None or value.constant.size != 1 or value.constant.dtype.kind not in "fiuV":
        return None
    if beside is not None and value.constant.ndim > (rank_of(beside) or 0):
        return None
    return float(value.constant.reshape(-1)[0])


def is_close(value: Value | None, number: float, tolerance: float = 1e-4, beside: Value | None = None) -> bool:
    """Whether a value is a constant scalar near `number` (exporters round √2 and the like differently), as `scalar` tells it."""
    found = scalar(value, beside)
    return found is not None and abs(found - number) <= tolerance * max(1.0, abs(number))


def made_by(value: Value | None, *op_classes: type[Op]) -> Node | None:
    """The node that makes a value, where it is one of these ops."""
    node = None if value is None else value.producer
    return node if node is not None and isinstance(node.op, op_classes) else None


def other_input(node: Node, value: Value) -> Value | None:
    """The other operand of a node with two inputs of which one is `value`."""
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]


def only_user(value: Value, graph: Graph) -> Node | None:
    """The one node that uses a value; None where there are more, none, or the value is a graph output."""
    return value.users[0] if len(value.users) == 1 and not graph.is_output(value) else None


def substitute(graph: Graph, old: Node, new: Node) -> None:
    """Puts `new`, which makes old's outputs, in old's place."""
    graph.nodes[graph.nodes.index(old)] = new
    old.detach()


def substitute_by(graph: Graph, old: Node, value: Value) -> None:
    """Puts an Identity of `value` in the place of a node that gives no more than this; identity elimination takes it out."""
    substitute(graph, old, Node(Identity(), [value], old.outputs, old.name))
