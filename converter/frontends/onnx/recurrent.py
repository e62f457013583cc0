"""LSTM, GRU, RNN: the same in every opset (opset 1's `output_sequence` left open what later ones always give)."""

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN

direct(LSTM, GRU, RNN)
