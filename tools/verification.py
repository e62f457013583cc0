"""Whether a conversion computes what its ONNX model does: the optimized model, the unoptimized one, and a reference on the same inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnnx.errors import MnnxError
from mnnx.tools.bisection import first_wrong_op, first_wrong_pass
from mnnx.tools.comparison import Bounds, compare, made_by_quantization
from mnnx.tools.feeds import FeedOptions, make_feed, telling_of_random_values

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.interpreter.session import Session
    from mnnx.tools.references import Reference


@dataclass
class Verification:
    """Rows of `comparison.compare` for each output: of the optimized and of the unoptimized model, against the reference.

    reference: its name; where it can't run the model, `reference_problem` says why, and the rows of the optimized model are against the
    unoptimized one. wrong_op, wrong_pass: see `bisection`. problem: why they can't be found.
    """

    reference: str
    level: int
    bounds: Bounds
    outputs: list[dict[str, Any]] = field(default_factory=list)
    unoptimized: list[dict[str, Any]] = field(default_factory=list)
    reference_problem: str | None = None
    wrong_op: dict[str, Any] | None = None
    wrong_pass: dict[str, Any] | None = None
    problem: str | None = None

    @property
    def equal(self) -> bool:
        return all(row["equal"] for row in [*self.outputs, *self.unoptimized])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "reference": self.reference,
            "reference_problem": self.reference_problem,
            "level": self.level,
            "equal": self.equal,
            "outputs": self.outputs,
            "unoptimized": self.unoptimized,
            "wrong_op": self.wrong_op,
            "wrong_pass": self.wrong_pass,
            "problem": self.problem,
        }


class Verifier:
    """Compares an ONNX file with the .mnnx file made from it with `level` and the other `options` of `convert`.

    reference: as for `choose_references`. config: of the sessions.
    """

    def __init__(
        self, source: str, level: int, bounds: Bounds, reference: str = "auto", config: Any = None, options: Mapping[str, Any] | None = None
    ):
        from mnnx.tools.references import choose_references

        self.source = source
        self.level = level
        self.bounds = bounds
        self.references = choose_references(reference, source)
        self.config = config
        self.options = dict(options or {})
        self.quantized = made_by_quantization(self.references[0].proto)

    def verify(self, optimized: Path, feeds: FeedOptions) -> Verification:
        """Compares the outputs, and where they differ looks for what is wrong.

        Raises MnnxError where inputs can't be made, a model can't be run on them, or the one reference that was asked for can't.
        """
        import mnnx

        with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
            plain = optimized
            if self.level > 0 or self.options:
                plain = Path(folder) / "unoptimized.mnnx"
                mnnx.convert(self.source, plain, level=0)
            with mnnx.Interpreter.from_file(optimized) as interpreter, interpreter.create_session(self.config) as session:
                feed = make_feed(session.inputs, feeds, session.resize)
                with telling_of_random_values(session.inputs, feeds):
                    got = session.run(feed)
            with mnnx.Interpreter.from_file(plain) as interpreter, interpreter.create_session(self.config) as session:
                return self._compare(interpreter, session, feed, got, plain is not optimized)

    def _compare(
        self, interpreter: Interpreter, session: Session, feed: dict[str, Any], got: dict[str, Any], is_optimized: bool
    ) -> Verification:
        unoptimized = session.run(feed)
        reference, wanted, failure = self._reference_outputs(feed, is_optimized)
        report = Verification(
            "the unoptimized model" if reference is None else reference.name, self.level, self.bounds, reference_problem=failure
        )
        report.outputs = self._rows(got, wanted or unoptimized)
        if reference is not None and is_optimized:
            report.unoptimized = self._rows(unoptimized, wanted)
        plain_is_right = all(row["equal"] for row in report.unoptimized or (report.outputs if not is_optimized else ()))
        try:
            if reference is not None and not plain_is_right:
                report.wrong_op = first_wrong_op(reference, interpreter, session, feed, self.bounds)
            if is_optimized and not all(row["equal"] for row in report.outputs):
                target = wanted if wanted and plain_is_right else unoptimized
                report.wrong_pass = first_wrong_pass(
                    self.source, self.level, self.options, feed, target, self.bounds, self.quantized, self.config
                )
        except MnnxError as error:
            report.problem = str(error)
        return report

    def _reference_outputs(self, feed: dict[str, Any], is_optimized: bool) -> tuple[Reference | None, dict[str, Any] | None, str | None]:
        """The first reference that runs the model, its outputs, and why none does."""
        from mnnx.tools.references import ReferenceFailed

        for reference in self.references:
            try:
                return reference, reference.run(feed), None
            except ReferenceFailed as error:
                failure = error
        if len(self.references) == 1 or not is_optimized:
            raise failure
        return None, None, str(failure)

    def _rows(self, values: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [compare(name, values[name], value, *self.bounds, name in self.quantized) for name, value in wanted.items()]
