"""Linear models and support vector machines, against their formulas written out."""

import numpy as np

from mnnx.schema.ops.ml_linear import LinearClassifier, LinearRegressor, SVMClassifier, SVMRegressor
from tests.cases import case, f32, f64, integers


def regressor(x, targets, intercepts):
    coefficients = f32(targets * x.shape[-1])
    op = LinearRegressor(coefficients=coefficients, targets=targets, intercepts=intercepts)
    bias = np.array(intercepts or 0, np.float32)
    case(op, x, reference=lambda x: (np.atleast_2d(x) @ coefficients.reshape(targets, -1).T + bias).astype(np.float32))


regressor(f32(5, 3), 1, ())
regressor(f32(5, 3), 2, (0.5, -1.0))
regressor(integers("int64", 4), 2, (0.5, -1.0))
regressor(f64(0, 3), 1, (1.0,))

weights, biases = f32(9), (0.25, -0.5, 0.0)
scores_of = lambda x: (x @ weights.reshape(3, 3).T + np.array(biases)).astype(np.float32)  # noqa: E731
case(
    LinearClassifier(coefficients=weights, intercepts=biases, classlabels_strings=("a", "b", "c")),
    f32(6, 3),
    reference=lambda x: (np.array(["a", "b", "c"], object)[scores_of(x).argmax(1)], scores_of(x)),
    outputs=2,
)
case(
    LinearClassifier(coefficients=weights, intercepts=biases, classlabels_ints=(5, 3, 1), post_transform="LOGISTIC"),
    f32(6, 3),
    reference=lambda x: (np.array([5, 3, 1])[scores_of(x).argmax(1)], 1 / (1 + np.exp(-scores_of(x)))),
    outputs=2,
)
single = lambda x: (x @ weights[:3] + np.float32(0.25)).astype(np.float32)  # noqa: E731
case(
    LinearClassifier(coefficients=weights[:3], intercepts=(0.25,), classlabels_ints=(7, 9)),
    f32(6, 3),
    reference=lambda x: (np.where(single(x) > 0, 9, 7), np.stack([1 - single(x), single(x)], 1)),
    outputs=2,
)

KERNELS = {
    "LINEAR": lambda a, b: a @ b,
    "POLY": lambda a, b: (0.5 * (a @ b) + 0.25) ** 2,
    "RBF": lambda a, b: np.exp(-0.5 * ((a - b) ** 2).sum()),
    "SIGMOID": lambda a, b: np.tanh(0.5 * (a @ b) + 0.25),
}
PARAMETERS = (0.5, 0.25, 2.0)
vectors, alphas = f32(4, 3), f32(4)


def svm_regression(kernel, one_class):
    def reference(x):
        y = np.array([[sum(a * kernel(row, v) for a, v in zip(alphas, vectors, strict=True)) + 0.125] for row in x], np.float32)
        return np.where(y > 0, 1, -1).astype(np.float32) if one_class else y

    return reference


for name, kernel in KERNELS.items():
    one_class = name == "RBF"
    op = SVMRegressor(
        coefficients=alphas,
        support_vectors=vectors.reshape(-1),
        rho=(0.125,),
        kernel_type=name,
        kernel_params=PARAMETERS,
        n_supports=4,
        one_class=one_class,
    )
    case(op, f32(5, 3), reference=svm_regression(kernel, one_class))

# Three classes with 2, 1 and 1 vectors; row r of the coefficients of class c belongs to its pair with class r, or r + 1 where r >= c.
pairwise, rho = f32(2, 4), (0.1, -0.2, 0.3)
starts = (0, 2, 3, 4)


def pair_scores(x):
    scores = []
    for row in x:
        k = np.array([KERNELS["RBF"](row, v) for v in vectors])
        of = lambda c, r: k[starts[c] : starts[c + 1]] @ pairwise[r, starts[c] : starts[c + 1]]  # noqa: B023, E731
        scores.append([of(0, 0) + of(1, 0) + rho[0], of(0, 1) + of(2, 0) + rho[1], of(1, 1) + of(2, 1) + rho[2]])
    return np.array(scores, np.float32)


def svm_classes(x):
    labels = []
    for s01, s02, s12 in pair_scores(x):
        votes = [0, 0, 0]
        votes[0 if s01 > 0 else 1] += 1
        votes[0 if s02 > 0 else 2] += 1
        votes[1 if s12 > 0 else 2] += 1
        labels.append("xyz"[votes.index(max(votes))])
    return np.array(labels, object), pair_scores(x)


case(
    SVMClassifier(
        coefficients=pairwise.reshape(-1),
        support_vectors=vectors.reshape(-1),
        rho=rho,
        vectors_per_class=(2, 1, 1),
        kernel_type="RBF",
        kernel_params=PARAMETERS,
        classlabels_strings=("x", "y", "z"),
    ),
    f32(8, 3),
    reference=svm_classes,
    outputs=2,
)
