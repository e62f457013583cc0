"""Ops that only move data, as regions of a `Raster`: `rewrite` at resize time, one geometry function per op."""

from mnnx.interpreter.geometry.region import piece
from mnnx.interpreter.geometry.registry import Filled, geometry, rewrite

__all__ = ["Filled", "geometry", "piece", "rewrite"]
