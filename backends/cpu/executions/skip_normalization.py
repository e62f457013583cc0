"""Normalizations of sums on the CPU, in float32."""

from __future__ import annotations

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import arguments, float32_bits
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.normalization import float32_only
from mnnx.backends.cpu.kernel import kernel
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.skip_normalization import EmbedLayerNormalization, SkipLayerNormalization, SkipSimplifiedLayerNormalization


def supports_rows(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    return float32_only(op, inputs, outputs) if inputs[0].shape[-1] else "no kernel for empty rows"


@creator(SkipLayerNormalization, SkipSimplifiedLayerNormalization, supports=supports_rows)
def create_rows(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return SkipNormalizationExecution(op, backend)


class SkipNormalizationExecution(Execution):
    """SkipLayerNormalization and SkipSimplifiedLayerNormalization."""

    in_place = (0,)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, skip, scale, *vectors = (*inputs, None, None)
        center = isinstance(self.op, SkipLayerNormalization)
        bias, shift = vectors[:2] if center else (None, vectors[0])
        y, means, deviations, sums = (*outputs, None, None, None)[:4]
        if x.spec.size == 0:
            return
        n = x.shape[-1]
        rows, skip_rows = x.spec.size // n, skip.spec.size // n
        row = x, y, rows, n, scale, bias or 0, float32_bits(self.op.epsilon), means or 0, deviations or 0
        block = arguments(*row, skip, skip_rows, shift or 0, sums or 0)
        function = kernel("skip_normalization.rows", center=center, bias=bias is not None)
        self.backend.commands.record(function, block, self.backend.chunks(x.spec.size / 2))


def supports_embeddings(op: EmbedLayerNormalization, inputs: Specs, outputs: Specs) -> str | None:
    ids, segment_ids, words, positions, segments, scale, bias, position_ids = _embeddings(inputs)
    if any(given is not None and given.dtype != ids.dtype for given in (segment_ids, position_ids)):
        return "no kernel for ids of several dtypes"
    floats = (words, positions, segments, scale, bias)
    return float32_only(op, floats, outputs) if words.shape[-1] else "no kernel for empty rows"


def _embeddings(inputs: Specs | Tensors) -> tuple:
    return (*inputs, None)[:8]


@creator(EmbedLayerNormalization, supports=supports_embeddings)
def create_embeddings(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return EmbedLayerNormalizationExecution(op, backend)


class EmbedLayerNormalizationExecution(Execution):
    """Rows of the tables, their sum and its normalization; an id out of range ends the run with an InputError."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        ids, segment_ids, words, positions, segments, scale, bias, position_ids = _embeddings(inputs)
        y, sums = (*outputs, None)[:2]
        if y.spec.size == 0:
            return
        rows, n = ids.spec.size, words.shape[1]
        tables = {"word": (ids, words), "position": (position_ids, positions), "segment": (segment_ids, segments)}
        reports, groups = 0, []
        for name, (given, table) in tables.items():
            if table is None:
                groups += [0] * 5
                continue
            reports, code = self._fault(name, table.spec)
            groups += [given or 0, ids.shape[1] if given is None else given.spec.size, table, table.shape[0], code]
        block = arguments(y, sums or 0, rows, n, scale, bias, float32_bits(self.op.epsilon), reports, *groups)
        function = kernel("skip_normalization.embeddings", index=ids.dtype.name, segments=segments is not None)
        self.backend.commands.record(function, block, self.backend.chunks(y.spec.size))

    def _fault(self, name: str, table: Spec) -> tuple[int, int]:
        size = table.shape[0]
        return self.backend.commands.fault(f"EmbedLayerNormalization's {name} id {{}} is outside [-{size}, {size}), the range of {table}")
