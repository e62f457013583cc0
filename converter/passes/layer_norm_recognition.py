"""The pass that recognises normalizations."""

from __future__ import annotations

from mnnx.converter.passes.base import RulePass
from mnnx.converter.passes.group_norm_recognition import RecognizeGroupNorm
from mnnx.converter.passes.row_norm_recognition import FoldScaleAndShift, RecognizeLayerNorm, RecognizeRmsNorm


class LayerNormRecognition(RulePass):
    """Makes LayerNormalization, RMSNormalization and GroupNormalization of the smaller ops in which exporters write them."""

    name = "layer-norm-recognition"
    level = 2
    rules = (RecognizeLayerNorm(), RecognizeRmsNorm(), FoldScaleAndShift(), RecognizeGroupNorm())
