"""Geometry of the ops in schema/ops/shape.py."""

import itertools
import math

from mnnx.interpreter.geometry.region import box, dense, strides_of, whole
from mnnx.interpreter.geometry.registry import geometry
from mnnx.schema.ops import shape as ops
from mnnx.schema.ops.raster import Region


@geometry(ops.Identity, ops.Reshape, ops.Flatten, ops.Squeeze, ops.Unsqueeze)
def view(op, inputs, outputs):
    return [whole(0, inputs[0].size)]


@geometry(ops.Transpose)
def transpose(op, inputs, outputs):
    strides = strides_of(inputs[0].shape)
    return [dense(0, 0, [strides[axis] for axis in op.order(inputs[0].rank)], outputs[0].shape)]


@geometry(ops.Expand)
def expand(op, inputs, outputs):
    data, result = inputs[0], outputs[0]
    shape = (1,) * (result.rank - data.rank) + data.shape
    return [dense(0, 0, [0 if dim == 1 else stride for dim, stride in zip(shape, strides_of(shape), strict=True)], result.shape)]


@geometry(ops.Tile)
def tile(op, inputs, outputs):
    # Each dim d, repeated r times, is the two dims (r, d) of the result, the first with source stride 0.
    pairs = list(zip(inputs[0].shape, strides_of(inputs[0].shape), outputs[0].shape, strict=True))
    shape = [n for dim, _, size in pairs for n in (size // dim if dim else 0, dim)]
    return [dense(0, 0, [s for _, stride, _ in pairs for s in (0, stride)], shape)]


@geometry(ops.Concat)
def concat(op, inputs, outputs):
    shape = outputs[0].shape
    axis = op.axis % len(shape)
    inner = math.prod(shape[axis + 1 :])
    starts = itertools.accumulate((i.shape[axis] for i in inputs), initial=0)
    return [
        Region(index, 0, strides_of(spec.shape), start * inner, strides_of(shape), spec.shape)
        for index, (spec, start) in enumerate(zip(inputs, starts, strict=False))
    ]


@geometry(ops.Split)
def split(op, inputs, outputs):
    shape = inputs[0].shape
    axis = op.axis % len(shape)
    starts = itertools.accumulate((o.shape[axis] for o in outputs), initial=0)
    at = [tuple(start if i == axis else 0 for i in range(len(shape))) for start in starts]
    return tuple([box(0, o.shape, (start, shape), ((0,) * o.rank, o.shape))] for o, start in zip(outputs, at, strict=False))


@geometry(ops.DepthToSpace)
def depth_to_space(op, inputs, outputs):
    n, c, h, w = inputs[0].shape
    b = op.blocksize
    depth = c // (b * b)
    if op.mode == "DCR":
        sn, sby, sbx, sc, sy, sx = strides_of((n, b, b, depth, h, w))
    else:
        sn, sc, sby, sbx, sy, sx = strides_of((n, depth, b, b, h, w))
    return [dense(0, 0, (sn, sc, sy, sby, sx, sbx), (n, depth, h, b, w, b))]


@geometry(ops.SpaceToDepth)
def space_to_depth(op, inputs, outputs):
    n, c, h, w = inputs[0].shape
    b = op.blocksize
    sn, sc, sy, sby, sx, sbx = strides_of((n, c, h // b, b, w // b, b))
    if op.mode == "DCR":
        return [dense(0, 0, (sn, sby, sbx, sc, sy, sx), (n, b, b, c, h // b, w // b))]
    return [dense(0, 0, (sn, sc, sby, sbx, sy, sx), (n, c, b, b, h // b, w // b))]
