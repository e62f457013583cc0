"""Einsum equations, parsed against the shapes of their operands."""

from collections.abc import Sequence

from mnnx.schema.ops.base import require
from mnnx.schema.records import Row

MAX_LABELS = 52


class Equation(Row):
    """Labels are ints: letters in order of appearance, and one for each dim that an ellipsis stands for.

    `terms` has the labels of each operand's dims, `output` those of the result, `sizes` the size of each label (dims of size 1 that
    broadcast to it allowed, as NumPy has it for ellipses).
    """

    terms: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    sizes: dict[int, int]

    @property
    def output_shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[label] for label in self.output)

    @classmethod
    def parse(cls, equation: str, shapes: Sequence[tuple[int, ...]]) -> "Equation":
        """Raises RuleError where the equation is malformed or doesn't fit the shapes."""
        left, arrow, right = equation.replace(" ", "").partition("->")
        texts = left.split(",")
        require(len(texts) == len(shapes), f"the equation {equation!r} has {len(texts)} operands, the op {len(shapes)}")
        for text in [*texts, right]:
            letters = text.replace("...", "", 1)
            require(letters == "" or (letters.isascii() and letters.isalpha()), f"{text!r} in the equation {equation!r} is malformed")
        width = max(
            (len(shape) - len(text) + 3 for text, shape in zip(texts, shapes, strict=True) if "..." in text),
            default=0,
        )
        letters = sorted({c for text in [*texts, right] for c in text.replace("...", "")})
        number = {letter: width + index for index, letter in enumerate(letters)}
        require(len(letters) + width <= MAX_LABELS, f"the equation {equation!r} needs more than {MAX_LABELS} labels")

        sizes: dict[int, int] = {}
        terms = []
        for text, shape in zip(texts, shapes, strict=True):
            labels = _labels(text, len(shape) - len(text) + 3, width, number)
            require(len(labels) == len(shape), f"{text!r} in the equation {equation!r} has {len(labels)} dims, its operand {list(shape)}")
            own: dict[int, int] = {}
            for label, size in zip(labels, shape, strict=True):
                require(own.setdefault(label, size) == size, f"a label twice in {text!r} stands for the sizes {own[label]} and {size}")
                known = sizes.setdefault(label, size)
                require(known == size or 1 in (known, size), f"a label of {equation!r} stands for the sizes {known} and {size}")
                if known == 1:
                    sizes[label] = size
            terms.append(labels)

        used = "".join(texts)
        if arrow:
            output = _labels(right, width, width, number)
            require(len(set(output)) == len(output), f"the output of {equation!r} has a label twice")
            require(set(output) <= sizes.keys(), f"the output of {equation!r} has a label that no operand has")
        else:
            output = (*range(width), *(number[letter] for letter in letters if used.count(letter) == 1))
        return cls(tuple(terms), output, sizes)


def _labels(text: str, own_width: int, width: int, number: dict[str, int]) -> tuple[int, ...]:
    """The labels of one term; its ellipsis stands for `own_width` dims, the last ones of `width`."""
    before, ellipsis, after = text.partition("...")
    middle = range(width - own_width, width) if ellipsis else ()
    return (*(number[c] for c in before), *middle, *(number[c] for c in after))
