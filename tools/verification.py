"""Whether a conversion computes what its ONNX model does: the optimized model, the unoptimized one, and a reference on the same inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnnx.errors import MnnxError
from mnnx.tools.bisection import first_wrong_op, first_wrong_pass
from mnnx.tools.comparison import Bounds, compare, compare_form, drawn_at_random, made_by_quantization
from mnnx.tools.feeds import FeedOptions, make_feed, telling_of_random_values

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.interpreter.session import Session
    from mnnx.tools.references import Reference


@dataclass
class Verification:
    """Rows of `comparison.compare` for each output: of the optimized and of the unoptimized model, against the reference.

    reference: its name; where it can't run the model, `reference_problem` says why, and the rows of the optimized model are against the
    unoptimized one. failure: why the optimized model can't run, where the unoptimized one can. wrong_op, wrong_pass: see `bisection`.
    problem: why they can't be found.
    """

    reference: str
    level: int
    bounds: Bounds
    outputs: list[dict[str, Any]] = field(default_factory=list)
    unoptimized: list[dict[str, Any]] = field(default_factory=list)
    reference_problem: str | None = None
    failure: str | None = None
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
            "failure": self.failure,
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
                shapes = {name: self.options[name] for name in ("input_shapes", "dims") if name in self.options}
                mnnx.convert(self.source, plain, level=0, **shapes)
            with mnnx.Interpreter.from_file(plain) as interpreter, interpreter.create_session(self.config) as session:
                feed = make_feed(session.inputs, feeds, session.resize)
                with telling_of_random_values(session.inputs, feeds):
                    unoptimized = session.run(feed)
                got, failure = (unoptimized, None) if plain is optimized else self._run(optimized, feed)
                report = self._compare(interpreter, session, feed, unoptimized, got, plain is not optimized)
            report.failure = failure
            return report

    def _run(self, optimized: Path, feed: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
        """The optimized model's outputs, or why it can't run."""
        import mnnx

        try:
            with mnnx.Interpreter.from_file(optimized) as interpreter, interpreter.create_session(self.config) as session:
                return session.run(feed), None
        except MnnxError as error:
            return None, str(error)

    def _compare(
        self,
        interpreter: Interpreter,
        session: Session,
        feed: dict[str, Any],
        unoptimized: dict[str, Any],
        got: dict[str, Any] | None,
        is_optimized: bool,
    ) -> Verification:
        reference, wanted, problem = self._reference_outputs(feed, is_optimized)
        report = Verification(
            "the unoptimized model" if reference is None else reference.name, self.level, self.bounds, reference_problem=problem
        )
        drawn = drawn_at_random(interpreter.model.graphs[0])
        report.outputs = self._rows(got, wanted or unoptimized, drawn)
        if reference is not None and is_optimized:
            report.unoptimized = self._rows(unoptimized, wanted, drawn)
        plain_is_right = all(row["equal"] for row in report.unoptimized or (report.outputs if not is_optimized else ()))
        try:
            if reference is not None and not plain_is_right:
                report.wrong_op = first_wrong_op(reference, interpreter, session, feed, self.bounds)
            if is_optimized and not all(row["equal"] for row in report.outputs):
                target = {k: v for k, v in (wanted if wanted and plain_is_right else unoptimized).items() if k not in drawn}
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

    def _rows(self, values: Mapping[str, Any] | None, wanted: Mapping[str, Any], drawn: set[str]) -> list[dict[str, Any]]:
        """values: None where there are none, as the model can't run."""
        if values is None:
            rows = [compare(name, value, value, *self.bounds) for name, value in wanted.items()]
            return [row | {"equal": False, "error": None, "note": "the model can't run"} for row in rows]
        return [
            compare_form(name, values[name], value)
            if name in drawn
            else compare(name, values[name], value, *self.bounds, name in self.quantized)
            for name, value in wanted.items()
        ]
