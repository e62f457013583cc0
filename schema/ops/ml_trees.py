"""Decision-tree ensembles of ai.onnx.ml, in one form for all versions of the operators."""

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import require_dtype

#: What a node compares its feature with its threshold by; the last one marks leaves.
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "LEAF")
LEAF = MODES.index("LEAF")
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NUMBERS = tuple(np.dtype(t) for t in ("float32", "float64", "int64", "int32"))

_FLOAT = np.dtype("float32")
_INDEX = np.dtype("int32")


def check_post_transform(name: str) -> None:
    require(name in POST_TRANSFORMS, f"post_transform must be one of {', '.join(POST_TRANSFORMS)}; it is {name!r}")


def check_labels(strings: tuple[str, ...], integers: tuple[int, ...]) -> None:
    require(bool(strings) != bool(integers), "class labels must be given as strings or as integers, not as both or neither")
    require(all(-(2**63) <= label < 2**63 for label in integers), "integer class labels must fit in 64 bits")


def rows_of(x: Spec, allowed: tuple[np.dtype, ...] = NUMBERS) -> tuple[int, int]:
    """(rows, features) of an input [N, F], or [F] for one row. Raises RuleError for other ranks and dtypes."""
    require_dtype(x, allowed)
    require(x.rank in (1, 2), f"the input must have the shape [N, F] or [F]; it is {x}")
    return (1, x.shape[0]) if x.rank == 1 else (x.shape[0], x.shape[1])


@op("ai.onnx.ml::TreeEnsemble")
class TreeEnsemble(Op):
    """Sums (or averages …) the votes of the leaves that each row of x [N, F] reaches → [N, n_targets], of x's dtype. TreeEnsemble-5.

    Nodes are numbered so that children come after their parents. Of each: the index of its feature, its threshold, its mode (an
    index into MODES), the nodes that follow where the comparison holds and where it doesn't (a leaf: itself), and whether NaN
    counts as if it held. Node n has the votes vote_starts[n] … vote_starts[n + 1]-1, each a weight for a target.
    """

    roots: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    modes: np.ndarray
    true_nodes: np.ndarray
    false_nodes: np.ndarray
    missing_true: np.ndarray
    vote_starts: np.ndarray
    vote_targets: np.ndarray
    vote_weights: np.ndarray
    n_targets: int
    aggregate: str = "SUM"
    post_transform: str = "NONE"
    base_values: np.ndarray | None = None

    def check(self):
        nodes, votes = len(self.features), self.vote_targets.size
        require(nodes > 0 and self.roots.size > 0, "a tree ensemble needs a node and a root")
        for key, length, dtype in (
            ("roots", self.roots.size, _INDEX),
            ("features", nodes, _INDEX),
            ("modes", nodes, np.dtype("uint8")),
            ("true_nodes", nodes, _INDEX),
            ("false_nodes", nodes, _INDEX),
            ("missing_true", nodes, np.dtype(bool)),
            ("vote_starts", nodes + 1, _INDEX),
            ("vote_targets", votes, _INDEX),
            ("thresholds", nodes, None),
            ("vote_weights", votes, None),
        ):
            array = getattr(self, key)
            require(array.shape == (length,), f"{key} must have {length} entries; its shape is {array.shape}")
            known = array.dtype == dtype if dtype is not None else array.dtype in (np.float32, np.float64)
            require(known, f"{key} can't be of dtype {array.dtype}")
        own = np.arange(nodes, dtype=_INDEX)
        leaf = self.modes == LEAF
        require((self.modes <= LEAF).all(), f"node modes must be 0 … {LEAF}")
        require((self.features >= 0).all(), "feature indices must not be negative")
        require(((self.roots >= 0) & (self.roots < nodes)).all(), "roots must be indices of nodes")
        for child in (self.true_nodes, self.false_nodes):
            require((child < nodes).all() and np.where(leaf, child == own, child > own).all(), "children must come after their parents")
        starts = self.vote_starts
        require(
            starts[0] == 0 and starts[-1] == votes and (np.diff(starts) >= 0).all(), "vote_starts must rise from 0 to the votes' number"
        )
        require(self.n_targets > 0, f"n_targets must be positive; it is {self.n_targets}")
        legal = (self.vote_targets >= 0) & (self.vote_targets < self.n_targets)
        require(legal.all(), f"votes must be for targets 0 … {self.n_targets - 1}")
        require(self.aggregate in ("SUM", "AVERAGE", "MIN", "MAX"), f"aggregate must be SUM, AVERAGE, MIN or MAX; it is {self.aggregate!r}")
        check_post_transform(self.post_transform)
        if self.base_values is not None:
            require(self.base_values.dtype in (np.float32, np.float64), f"base_values can't be of dtype {self.base_values.dtype}")
            require(self.base_values.ndim == 1, f"base_values must be a vector; its shape is {self.base_values.shape}")

    def infer(self, x: Spec) -> Spec:
        return Spec(x.dtype, (self._rows(x, (*NUMBERS[:2], np.dtype("float16"))), self.n_targets))

    def _rows(self, x: Spec, allowed: tuple[np.dtype, ...] = NUMBERS) -> int:
        rows, features = rows_of(x, allowed)
        largest = int(self.features.max())
        require(largest < features, f"the trees use feature {largest}, so the input needs more features; it is {x}")
        return rows


@op("ai.onnx.ml::TreeEnsembleRegressor")
class TreeEnsembleRegressor(TreeEnsemble):
    """TreeEnsemble with a float32 result, for float and integer inputs. TreeEnsembleRegressor-3."""

    def infer(self, x: Spec) -> Spec:
        return Spec(_FLOAT, (self._rows(x), self.n_targets))


@op("ai.onnx.ml::TreeEnsembleClassifier")
class TreeEnsembleClassifier(TreeEnsemble):
    """x [N, F] → (labels [N], scores [N, E]) with E labels; n_targets is E. TreeEnsembleClassifier-3.

    Where there are two labels and all votes are for one target, that target's sum s stands for the second label: against 0.5 where no
    weight is negative, with scores (1 - s, s), else against 0, with scores (-s, s).
    """

    classlabels_strings: tuple[str, ...] = ()
    classlabels_int64s: tuple[int, ...] = ()

    def check(self):
        super().check()
        check_labels(self.classlabels_strings, self.classlabels_int64s)
        count = len(self.classlabels_strings or self.classlabels_int64s)
        require(self.n_targets == count, f"n_targets must be the number of labels {count}; it is {self.n_targets}")
        require(self.aggregate == "SUM", "a classifier sums its votes")
        bases = 0 if self.base_values is None else self.base_values.size
        require(bases in (0, 1, count), f"base_values must have one entry per label or one; it has {bases}")

    def infer(self, x: Spec) -> tuple[Spec, Spec]:
        rows = self._rows(x)
        labels = dtypes.STRING if self.classlabels_strings else np.dtype("int64")
        return Spec(labels, (rows,)), Spec(_FLOAT, (rows, self.n_targets))
