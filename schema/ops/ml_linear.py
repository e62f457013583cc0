"""Linear models and support vector machines of ai.onnx.ml. Inputs are [N, F], or [F] for one row; they are computed in float32."""

import math
from collections.abc import Collection

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.ml_trees import check_labels, check_post_transform, rows_of

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

_FLOAT = np.dtype("float32")


def _check_vector(array: np.ndarray, what: str) -> None:
    require(array.dtype == _FLOAT and array.ndim == 1, f"{what} must be a float32 vector; it is {array.dtype}{list(array.shape)}")


def _label_dtype(strings: Collection[str]) -> np.dtype:
    return dtypes.STRING if strings else np.dtype("int64")


@op("ai.onnx.ml::LinearRegressor")
class LinearRegressor(Op):
    """x @ coefficients' + intercepts → [N, targets], with coefficients [targets * F]. LinearRegressor-1."""

    coefficients: np.ndarray
    intercepts: tuple[float, ...] = ()
    post_transform: str = "NONE"
    targets: int = 1

    def check(self):
        _check_vector(self.coefficients, "coefficients")
        check_post_transform(self.post_transform)
        require(self.targets > 0, f"targets must be positive; it is {self.targets}")
        require(len(self.intercepts) in (0, self.targets), f"intercepts must have {self.targets} entries; it has {len(self.intercepts)}")

    def infer(self, x: Spec) -> Spec:
        rows, features = rows_of(x)
        require(self.coefficients.size == self.targets * features, f"there must be {self.coefficients.size} / targets features; x is {x}")
        return Spec(_FLOAT, (rows, self.targets))


@op("ai.onnx.ml::LinearClassifier")
class LinearClassifier(Op):
    """x [N, F] → (labels [N], scores [N, E]) by s = x @ coefficients' + intercepts. LinearClassifier-1.

    The label of the largest score wins. With one row of coefficients and two labels, the second wins where s > 0, and scores are
    (1 - s, s).
    """

    coefficients: np.ndarray
    intercepts: tuple[float, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    post_transform: str = "NONE"

    def check(self):
        _check_vector(self.coefficients, "coefficients")
        check_post_transform(self.post_transform)
        check_labels(self.classlabels_strings, self.classlabels_ints)
        models, labels = self.models, len(self.classlabels_strings or self.classlabels_ints)
        require(models == labels or (models == 1 and labels <= 2), f"{models} models don't fit {labels} labels")
        require(self.coefficients.size % models == 0, f"{self.coefficients.size} coefficients can't be shared out among {models} models")

    @property
    def models(self) -> int:
        """The number of rows of coefficients."""
        return len(self.intercepts) or len(self.classlabels_strings or self.classlabels_ints)

    def infer(self, x: Spec) -> tuple[Spec, Spec]:
        rows, features = rows_of(x)
        wanted = self.coefficients.size // self.models
        require(features == wanted, f"the input must have {wanted} features; it is {x}")
        count = len(self.classlabels_strings or self.classlabels_ints)
        return Spec(_label_dtype(self.classlabels_strings), (rows,)), Spec(_FLOAT, (rows, count))


def _check_kernel(kernel_type: str, parameters: tuple[float, ...]) -> None:
    require(kernel_type in KERNELS, f"kernel_type must be one of {', '.join(KERNELS)}; it is {kernel_type!r}")
    require(len(parameters) in (0, 3), f"kernel_params must be gamma, coef0 and degree; they are {list(parameters)}")


@op("ai.onnx.ml::SVMRegressor")
class SVMRegressor(Op):
    """x [N, F] → sum of coefficients * kernel(x, support vector) + rho, [N, 1]; without support vectors x @ coefficients + rho.

    `one_class`: the result is 1 where that is positive, else -1. ONNX Runtime ignores post_transform, and so do we. SVMRegressor-1.
    """

    coefficients: np.ndarray
    support_vectors: np.ndarray
    rho: tuple[float, ...]
    kernel_type: str = "LINEAR"
    kernel_params: tuple[float, ...] = ()
    n_supports: int = 0
    one_class: bool = False
    post_transform: str = "NONE"

    def check(self):
        _check_vector(self.coefficients, "coefficients")
        _check_vector(self.support_vectors, "support_vectors")
        _check_kernel(self.kernel_type, self.kernel_params)
        check_post_transform(self.post_transform)
        require(len(self.rho) >= 1, "rho must have an entry")
        require(self.n_supports >= 0, f"n_supports must not be negative; it is {self.n_supports}")
        if self.n_supports:
            fits = self.coefficients.size == self.n_supports and self.support_vectors.size % self.n_supports == 0
            require(
                fits, f"{self.coefficients.size} coefficients and {self.support_vectors.size} vector entries for {self.n_supports} vectors"
            )

    def infer(self, x: Spec) -> Spec:
        rows, features = rows_of(x)
        wanted = self.support_vectors.size // self.n_supports if self.n_supports else self.coefficients.size
        require(features == wanted, f"the input must have {wanted} features; it is {x}")
        return Spec(_FLOAT, (rows, 1))


@op("ai.onnx.ml::SVMClassifier")
class SVMClassifier(Op):
    """x [N, F] → (labels [N], scores). SVMClassifier-1. Support vectors: one against one, as in libsvm; none: a linear model per class.

    Scores: [N, E] probabilities of the E classes where prob_a and prob_b are given (Wu, Lin, Weng, "Probability estimates for
    multi-class classification by pairwise coupling", 2004), else one score per pair of classes ([N, 2] for two classes).
    """

    coefficients: np.ndarray
    support_vectors: np.ndarray
    rho: tuple[float, ...]
    prob_a: tuple[float, ...] = ()
    prob_b: tuple[float, ...] = ()
    vectors_per_class: tuple[int, ...] = ()
    kernel_type: str = "LINEAR"
    kernel_params: tuple[float, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    post_transform: str = "NONE"

    @property
    def classes(self) -> int:
        return len(self.classlabels_strings or self.classlabels_ints)

    @property
    def vectors(self) -> int:
        return sum(self.vectors_per_class)

    def check(self):
        _check_vector(self.coefficients, "coefficients")
        _check_vector(self.support_vectors, "support_vectors")
        _check_kernel(self.kernel_type, self.kernel_params)
        check_post_transform(self.post_transform)
        check_labels(self.classlabels_strings, self.classlabels_ints)
        require(all(n >= 0 for n in self.vectors_per_class), "vectors_per_class must not be negative")
        require(len(self.rho) >= 1, "rho must have an entry")
        require(len(self.prob_a) == len(self.prob_b), "prob_a and prob_b must have the same length")
        pairs = math.comb(self.classes, 2)
        if self.vectors:
            require(len(self.vectors_per_class) == self.classes >= 2, f"vectors_per_class must have an entry per class ({self.classes})")
            require(len(self.rho) >= pairs, f"rho must have an entry per pair of classes ({pairs}); it has {len(self.rho)}")
            require(len(self.prob_a) == 0 or len(self.prob_a) >= pairs, f"prob_a must have an entry per pair of classes ({pairs})")
            wanted = (self.classes - 1) * self.vectors
            require(self.coefficients.size == wanted, f"there must be {wanted} coefficients, not {self.coefficients.size}")
            require(self.support_vectors.size % self.vectors == 0, f"the support vectors must be {self.vectors} rows")
        else:
            require(self.coefficients.size % self.classes == 0, f"the coefficients must be {self.classes} rows")

    def infer(self, x: Spec) -> tuple[Spec, Spec]:
        rows, features = rows_of(x)
        wanted = self.support_vectors.size // self.vectors if self.vectors else self.coefficients.size // self.classes
        require(features == wanted, f"the input must have {wanted} features; it is {x}")
        scores = self.classes
        if self.vectors and not self.prob_a and self.classes > 2:
            scores = math.comb(self.classes, 2)
        return Spec(_label_dtype(self.classlabels_strings), (rows,)), Spec(_FLOAT, (rows, scores))
