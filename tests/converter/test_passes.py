"""Each pass on a small graph: how often it fired, which ops are left, and equal numbers at every level."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx
from mnnx.converter.passes import documentation, list_passes
from tests.converter.filled import filled

#: pass → (model, {rewrite: count}, ops that are left)
MODELS = {
    "affine-folding": (
        """agraph (float[1,3,6,6] x) => (float[1,4,4,4] y)
        <float[4,3,3,3] w, float[4] gamma, float[4] beta, float[4] mean, float[4] variance, float[4,1,1] scale>
        { c = Conv(x, w)
          n = BatchNormalization(c, gamma, beta, mean, variance)
          y = Mul(n, scale) }""",
        {"scale and shift into the product before": 2},
        {"Conv": 1},
    ),
    "epilogue-fusion": (
        """agraph (float[1,3,6,6] x, float[1,4,6,6] r) => (float[1,4,6,6] y)
        <float[4,3,1,1] w>
        { c = Conv(x, w)
          s = Add(r, c)
          y = Relu(s) }""",
        {"residual sum": 1, "activation": 1},
        {"mnnx::FusedConv": 1},
    ),
    "epilogue-fusion of a matrix product": (
        """agraph (float[2,5,8] x) => (float[2,5,6] y)
        <float[8,6] w, float[6] b>
        { p = MatMul(x, w)
          s = Add(p, b)
          y = Sigmoid(s) }""",
        {"bias into MatMul": 1, "activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "epilogue-fusion of a Gemm": (
        """agraph (float[5,8] x) => (float[5,6] y)
        <float[6,8] w, float[6] b>
        { p = Gemm<transB = 1, alpha = 0.5>(x, w, b)
          y = LeakyRelu<alpha = 0.2>(p) }""",
        {"Gemm to MatMul": 1, "activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "epilogue-fusion of a scaled product": (
        """agraph (float[2,5,8] x, float[2,8,6] z) => (float[2,5,6] y)
        <float eight = {8}, float[6] b>
        { p = MatMul(x, z)
          s = Div(p, eight)
          y = Add(s, b) }""",
        {"scale into MatMul": 1, "bias into MatMul": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "epilogue-fusion of a learned scale": (
        """agraph (float[1,3,6,6] x) => (float[1,4,6,6] y)
        <float[4,3,1,1] w, float[1] s = {-0.4}, float t = {0.25}, float d = {3}, float[4,4,3,3] v>
        { c = Conv(x, w)
          h = HardSwish(c)
          m = Mul(s, h)
          a = Sub(t, m)
          b = Div(a, d)
          y = Conv<pads = [1, 1, 1, 1]>(b, v) }""",
        {"activation": 1, "factor and shift of HardSwish": 2},
        {"mnnx::FusedConv": 1, "Conv": 1},
    ),
    "pad-folding": (
        """agraph (float[1,3,6,6] x) => (float[1,4,7,8] y)
        <float[4,3,3,3] w, int64[8] pads = {0, 0, 1, 2, 0, 0, 2, 2}>
        { p = Pad(x, pads)
          y = Conv(p, w) }""",
        {"zero padding into Conv": 1},
        {"Conv": 1},
    ),
    "activation-recognition of HardSwish": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float three = {3}, float low = {0}, float high = {6}>
        { a = Add(x, three)
          c = Clip(a, low, high)
          m = Mul(x, c)
          y = Div(m, high) }""",
        {"HardSwish": 1},
        {"HardSwish": 1},
    ),
    "activation-recognition of HardSigmoid": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float three = {3}, float low = {0}, float high = {6}>
        { a = Add(x, three)
          c = Clip(a, low, high)
          y = Div(c, high) }""",
        {"HardSigmoid": 1},
        {"HardSigmoid": 1},
    ),
    "activation-recognition of Swish": (
        """agraph (float[2,9] x) => (float[2,9] y)
        { s = Sigmoid(x)
          y = Mul(s, x) }""",
        {"Swish": 1},
        {"Swish": 1},
    ),
    "activation-recognition of Gelu": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float root = {1.4142135}, float one = {1}, float half = {0.5}>
        { d = Div(x, root)
          e = Erf(d)
          a = Add(e, one)
          h = Mul(x, half)
          y = Mul(h, a) }""",
        {"Gelu": 1},
        {"Gelu": 1},
    ),
    "activation-recognition of Gelu with x taken out of the cubic": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float k = {0.044715}, float c = {0.79788456}, float one = {1}, float half = {0.5}>
        { s = Mul(x, x)
          p = Mul(s, k)
          q = Add(one, p)
          r = Mul(x, c)
          a = Mul(r, q)
          t = Tanh(a)
          b = Add(one, t)
          h = Mul(half, b)
          y = Mul(x, h) }""",
        {"Gelu": 1},
        {"Gelu": 1},
    ),
    "activation-recognition of Gelu with merged factors": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float two = {2}, float k = {0.03567741}, float c = {0.79788456}, float one = {1}>
        { s = Pow(x, two)
          p = Mul(s, k)
          q = Add(p, c)
          a = Mul(q, x)
          t = Tanh(a)
          b = Add(t, one)
          m = Mul(b, x)
          y = Div(m, two) }""",
        {"Gelu": 1},
        {"Gelu": 1},
    ),
    "epilogue-fusion of a bias and Gelu": (
        """agraph (float[2,5,8] x) => (float[2,5,6] y)
        <float[8,6] w, float[6] b, float k = {0.044715}, float c = {0.79788456}, float one = {1}, float half = {0.5}, float three = {3}>
        { m = MatMul(x, w)
          z = Add(m, b)
          h = Mul(z, half)
          p = Pow(z, three)
          q = Mul(p, k)
          r = Add(z, q)
          s = Mul(r, c)
          t = Tanh(s)
          a = Add(t, one)
          y = Mul(h, a) }""",
        {"bias into MatMul": 1, "activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "activation-recognition of Gelu with tanh": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float three = {3}, float k = {0.044715}, float c = {0.7978845608}, float one = {1}, float half = {0.5}>
        { p = Pow(x, three)
          q = Mul(p, k)
          r = Add(x, q)
          s = Mul(r, c)
          t = Tanh(s)
          a = Add(t, one)
          m = Mul(x, a)
          y = Mul(m, half) }""",
        {"Gelu": 1},
        {"Gelu": 1},
    ),
    "activation-recognition of Gelu with products for the cube": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float k = {0.044715}, float c = {0.7978845608}, float one = {1}, float half = {0.5}>
        { n = Neg(x)
          p = Mul(k, n)
          q = Mul(n, p)
          r = Mul(n, q)
          s = Add(n, r)
          t = Mul(c, s)
          u = Tanh(t)
          a = Add(one, u)
          h = Mul(half, a)
          y = Mul(n, h) }""",
        {"Gelu": 1},
        {"Neg": 1, "Gelu": 1},
    ),
    "layer-norm-recognition": (
        """agraph (float[2,3,8] x) => (float[2,3,8] y)
        <int64[1] last = {-1}, float two = {2}, float epsilon = {0.00001}, float[8] gamma, float[8] beta>
        { m = ReduceMean(x, last)
          d = Sub(x, m)
          s = Pow(d, two)
          v = ReduceMean(s, last)
          e = Add(v, epsilon)
          r = Sqrt(e)
          n = Div(d, r)
          g = Mul(n, gamma)
          y = Add(g, beta) }""",
        {"LayerNormalization": 1, "scale and bias": 2},
        {"LayerNormalization": 1},
    ),
    "layer-norm-recognition of LayerNormalization without a scale": (
        """agraph (float[2,3,8] x) => (float[2,3,8] y)
        <int64[1] last = {-1}, float epsilon = {0.00001}>
        { m = ReduceMean(x, last)
          d = Sub(x, m)
          s = Mul(d, d)
          v = ReduceMean(s, last)
          e = Add(v, epsilon)
          r = Sqrt(e)
          y = Div(d, r) }""",
        {"LayerNormalization": 1},
        {"LayerNormalization": 1},
    ),
    "layer-norm-recognition of LayerNormalization without a bias": (
        """agraph (float[2,3,8] x) => (float[2,3,8] y)
        <int64[1] last = {2}, float minus = {-0.5}, float epsilon = {0.00001}, float[1,1,8] gamma>
        { m = ReduceMean(x, last)
          d = Sub(x, m)
          s = Mul(d, d)
          v = ReduceMean(s, last)
          e = Add(v, epsilon)
          r = Pow(e, minus)
          n = Mul(r, d)
          y = Mul(gamma, n) }""",
        {"LayerNormalization": 1, "scale and bias": 1},
        {"LayerNormalization": 1},
    ),
    "layer-norm-recognition of a factor and shifts behind": (
        """agraph (float[2,3,8] x) => (float[2,3,8] y)
        <float[8] scale, float[8] bias, float factor = {3}, float[1,8] shift, float[8] more>
        { n = LayerNormalization(x, scale, bias)
          a = Sub(shift, n)
          b = Mul(a, factor)
          y = Add(more, b) }""",
        {"scale and bias": 3},
        {"LayerNormalization": 1},
    ),
    "layer-norm-recognition of RMSNormalization": (
        """agraph (float[2,3,8] x) => (float[2,3,8] y)
        <int64[1] last = {-1}, float two = {2}, float epsilon = {0.001}, float[8] gamma>
        { s = Pow(x, two)
          m = ReduceMean(s, last)
          e = Add(m, epsilon)
          r = Sqrt(e)
          i = Reciprocal(r)
          n = Mul(x, i)
          y = Mul(gamma, n) }""",
        {"RMSNormalization": 1, "scale and bias": 1},
        {"RMSNormalization": 1},
    ),
    "layer-norm-recognition of RMSNormalization by a division": (
        """agraph (float[2,3,8] x) => (float[2,3,8] y)
        <int64[1] last = {2}, float[1] epsilon = {0.001}, float[8] gamma>
        { s = Mul(x, x)
          m = ReduceMean(s, last)
          e = Add(epsilon, m)
          r = Sqrt(e)
          n = Div(x, r)
          y = Mul(n, gamma) }""",
        {"RMSNormalization": 1, "scale and bias": 1},
        {"RMSNormalization": 1},
    ),
    "layer-norm-recognition of GroupNormalization": (
        """agraph (float[2,6,3,4] x) => (float[2,6,3,4] y)
        <int64[3] groups = {0, 2, -1}, int64[4] whole = {2, 6, 3, 4}, float[2] one, float[2] zero, float[6,1,1] gamma, float[6,1,1] beta>
        { a = Reshape(x, groups)
          b = InstanceNormalization<epsilon = 0.001>(a, one, zero)
          c = Reshape(b, whole)
          d = Mul(c, gamma)
          y = Add(d, beta) }""",
        {"GroupNormalization": 1},
        {"GroupNormalization": 1},
    ),
    "rotary-recognition": (
        """agraph (float[2,3,5,4] x, float[2,5,2] f) => (float[2,3,5,4] y)
        <int64[1] zero = {0}, int64[1] half = {2}, int64[1] end = {9223372036854775807}, int64[1] last = {3}, int64[1] heads = {1},
         float scale = {1.5}>
        { e = Concat<axis = -1>(f, f)
          c = Cos(e)
          s = Sin(e)
          c1 = Mul(c, scale)
          s1 = Mul(scale, s)
          c2 = Unsqueeze(c1, heads)
          s2 = Unsqueeze(s1, heads)
          a = Slice(x, zero, half, last)
          b = Slice(x, half, end, last)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(x, c2)
          q = Mul(r, s2)
          y = Add(p, q) }""",
        {"RotaryEmbedding": 1},
        {"Cos": 1, "Sin": 1, "Mul": 2, "RotaryEmbedding": 1},
    ),
    "rotary-recognition of two tensors": (
        """agraph (float[2,3,5,4] x, float[2,2,5,4] z, float[2,5,2] f) => (float[2,5,5,4] y)
        <int64[1] heads = {1}>
        { e = Unsqueeze(f, heads)
          e2 = Concat<axis = 3>(e, e)
          c = Cos(e2)
          s = Sin(e2)
          a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c, x)
          q = Mul(s, r)
          u = Add(q, p)
          a2, b2 = Split<axis = -1, num_outputs = 2>(z)
          n2 = Neg(b2)
          r2 = Concat<axis = -1>(n2, a2)
          p2 = Mul(z, c)
          q2 = Mul(r2, s)
          v = Add(p2, q2)
          y = Concat<axis = 1>(u, v) }""",
        {"RotaryEmbedding": 2},
        {"Cos": 1, "Sin": 1, "RotaryEmbedding": 2, "Concat": 1},
    ),
    "rotary-recognition of constants": (
        """agraph (float[1,3,2,4] x) => (float[1,3,2,4] y)
        <float[1,1,2,4] c = {0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.75}, float[2,4] s = {0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4}>
        { a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c, x)
          q = Mul(s, r)
          y = Add(q, p) }""",
        {"RotaryEmbedding": 1},
        {"RotaryEmbedding": 1},
    ),
    "rotary-recognition of rows of constants": (
        """agraph (float[1,3,2,4] x, float[1,2] z) => (float[1,3,2,4] y)
        <float[2,4] c = {0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.75}, float[2,4] s = {0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4},
         int64[1] heads = {1}, float low = {0}, float high = {1}>
        { v = Clip(z, low, high)
          i = Cast<to = 7>(v)
          c1 = Gather<axis = 0>(c, i)
          s1 = Gather<axis = 0>(s, i)
          c2 = Unsqueeze(c1, heads)
          s2 = Unsqueeze(s1, heads)
          a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c2, x)
          q = Mul(s2, r)
          y = Add(q, p) }""",
        {"RotaryEmbedding": 1},
        {"Clip": 1, "Cast": 1, "Gather": 2, "RotaryEmbedding": 1},
    ),
    "attention-recognition": (
        """agraph (float[1,5,3,8] q, float[1,7,3,8] k, float[1,7,3,8] v, float[1,1,1,7] mask) => (float[1,5,3,8] y)
        <float c = {2}>
        { a = Transpose<perm = [0, 2, 1, 3]>(q)
          b = Transpose<perm = [0, 2, 3, 1]>(k)
          d = Transpose<perm = [0, 2, 1, 3]>(v)
          s = MatMul(a, b)
          t = Div(s, c)
          m = Add(t, mask)
          p = Softmax<axis = -1>(m)
          o = MatMul(p, d)
          y = Transpose<perm = [0, 2, 1, 3]>(o) }""",
        {"attention": 1},
        {"mnnx::FusedAttention": 1},
    ),
    "attention-recognition of scaled operands": (
        """agraph (float[2,5,8] q, float[2,7,8] k, float[2,7,4] v) => (float[2,5,4] y)
        <float c = {0.5}, float e = {0.25}>
        { a = Mul(q, c)
          b = Transpose<perm = [0, 2, 1]>(k)
          d = Mul(e, b)
          s = MatMul(a, d)
          p = Softmax<axis = 2>(s)
          y = MatMul(p, v) }""",
        {"attention": 1},
        {"mnnx::FusedAttention": 1},
    ),
    "movement": (
        """agraph (float[2,3,4] x) => (float[6,4] y)
        <int64[3] first = {3, 2, 4}, int64[2] second = {6, -1}>
        { a = Transpose<perm = [1, 0, 2]>(x)
          b = Transpose<perm = [1, 0, 2]>(a)
          c = Reshape(b, first)
          y = Reshape(c, second) }""",
        {"Transpose of Transpose": 1, "Reshape of Reshape": 1},
        {"Reshape": 1},
    ),
    "constant-folding": (
        """agraph (float[2,3] x) => (float[3,2] y)
        <float[3] a, float[3] b>
        { s = Add(a, b)
          h = Shape(x)
          z = Cast<to = 1>(h)
          t = ReduceSum(z)
          u = Mul(s, t)
          v = Add(x, u)
          y = Transpose<perm = [1, 0]>(v) }""",
        {"Add": 1, "Cast": 1, "ReduceSum": 1, "Mul": 1},
        {"Add": 1, "Transpose": 1},
    ),
    "neutral-operands": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <float zero = {0}, float[1] one = {1}, float[3] ones = {1, 1, 1}>
        { a = Mul(one, x)
          b = Sub(a, zero)
          c = Div(b, ones)
          d = Neg(c)
          e = Neg(d)
          f = Cast<to = 11>(e)
          g = Cast<to = 10>(f)
          i = Cast<to = 1>(g)
          y = Exp(i) }""",
        {"neutral operand": 3, "done twice": 1, "Cast of Cast": 1},
        {"Cast": 2, "Exp": 1},
    ),
    "constant-sharing": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <float[2] a = {2, 3}, float[3] b = {1, 2, 3}, float[3] c = {1, 2, 3}, int32[3] d = {1, 2, 3}>
        { e = Add(x, b)
          f = Add(x, c)
          g = Mul(e, f)
          h = Cast<to = 6>(g)
          i = Add(h, d)
          y = Cast<to = 1>(i) }""",
        {"constant": 1},
        {"Add": 2, "Mul": 1, "Cast": 2},
    ),
    "known-branches": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <bool yes = {1}, bool no = {0}>
        { b, a = If(yes) <then_branch = t () => (float[2,3] p, float[2,3] q) { p = Exp(x) q = If(no) <
                            then_branch = tt () => (float[2,3] u) { u = Sqrt(x) }, else_branch = te () => (float[2,3] v) { v = Neg(p) }> },
                          else_branch = e () => (float[2,3] r, float[2,3] s) { r = Neg(x) s = Abs(x) }>
          y = Max(a, b) }""",
        {"If": 2},
        {"Exp": 1, "Neg": 1, "Max": 1},
    ),
    "activation-recognition of Swish with a factor": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float alpha = {1.702}>
        { m = Mul(alpha, x)
          s = Sigmoid(m)
          y = Mul(x, s) }""",
        {"Swish": 1},
        {"Swish": 1},
    ),
    "activation-recognition of Mish": (
        """agraph (float[2,9] x) => (float[2,9] y)
        { s = Softplus(x)
          t = Tanh(s)
          y = Mul(x, t) }""",
        {"Mish": 1},
        {"Mish": 1},
    ),
    "epilogue-fusion of Elu": (
        """agraph (float[2,8] x) => (float[2,6] y)
        <float[8,6] w>
        { p = MatMul(x, w)
          y = Elu<alpha = 0.7>(p) }""",
        {"activation": 1},
        {"mnnx::FusedMatMul": 1},
    ),
    "movement of what cancels": (
        """agraph (float[2,1,3,4] x) => (float[4,3,2] y)
        <int64[1] one = {1}, int64[1] minus = {1}>
        { a = Squeeze(x, one)
          b = Unsqueeze(a, minus)
          c = Squeeze(b, one)
          d = Transpose<perm = [2, 1, 0]>(c)
          e = Exp(d)
          f = Tanh(e)
          g = Transpose<perm = [2, 1, 0]>(f)
          y = Transpose<perm = [2, 1, 0]>(g) }""",
        {"Squeeze and Unsqueeze": 1, "movement before a function": 4, "Transpose of Transpose": 1},
        {"Squeeze": 1, "Transpose": 1, "Exp": 1, "Tanh": 1},
    ),
    "movement of an argument": (
        """agraph (float[2,3,4] x, float n) => (float[2,3,4] y)
        <float[3] bias = {1, 2, 3}, int64[2] column = {3, 1}>
        { t = Transpose<perm = [1, 0, 2]>(x)
          e = Exp(t)
          a = Mul(e, n)
          u = Transpose<perm = [1, 0, 2]>(a)
          d = Div(bias, n)
          f = Floor(d)
          c = Reshape(f, column)
          y = Add(u, c) }""",
        {"movement before a function": 4, "Transpose of Transpose": 1},
        {"Exp": 1, "Mul": 1, "Div": 1, "Floor": 1, "Add": 1},
    ),
    "movement of Concats": (
        """agraph (float[2,3] x, float[2,1] z) => (float[2,8] y)
        { a = Concat<axis = 1>(x, z)
          b = Concat<axis = 1>(a, a)
          c = Concat<axis = 1>(x, z)
          d = Concat<axis = 1>(c, c)
          y = Add(b, d) }""",
        {},
        {"Concat": 2, "Add": 1},
    ),
    "movement of a Concat": (
        """agraph (float[2,3] x, float[2,1] z) => (float[2,7] y)
        { a = Concat<axis = 1>(x, z)
          y = Concat<axis = 1>(a, x) }""",
        {"Concat of Concat": 1},
        {"Concat": 1},
    ),
    "identity-elimination of data movement": (
        """agraph (float[2,3] x) => (float[2,3] y)
        <int64[2] none = {0, 0}, int64[2] end = {9223372036854775807, 3}, int64[4] pads = {0, 0, 0, 0}, int64[2] ones = {1, 1},
         int64[2] shape = {0, 3}, int64[2] open = {2, -1}>
        { a = Slice(x, none, end)
          b = Pad(a, pads)
          c = Tile(b, ones)
          d = Expand(c, ones)
          e = Reshape(d, shape)
          f = Reshape(e, open)
          g = Concat<axis = 0>(f)
          h = Flatten<axis = 1>(g)
          i = Split<axis = 1, num_outputs = 1>(h)
          y = Exp(i) }""",
        {"Slice": 1, "Pad": 1, "Tile": 1, "Expand": 1, "Reshape": 2, "Concat": 1, "Flatten": 1, "Split": 1},
        {"Exp": 1},
    ),
    "common-subexpressions": (
        """agraph (float[2,3] x) => (float[2,3] y)
        { a = Exp(x)
          b = Exp(x)
          c = Sqrt(a)
          d = Sqrt(b)
          y = Add(c, d) }""",
        {"Exp": 1, "Sqrt": 1},
        {"Exp": 1, "Sqrt": 1, "Add": 1},
    ),
    "identity-elimination": (
        """agraph (float[2,3] x) => (float[2,3] y)
        { a = Identity(x)
          b = Cast<to = 1>(a)
          c = Dropout(b)
          d = Exp(c)
          y = Identity(d) }""",
        {"Identity": 3, "Cast": 1},
        {"Exp": 1},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_pass_rewrites_what_it_names(name: str, tmp_path: Path) -> None:
    text, counts, left = MODELS[name]
    report = mnnx.convert(filled(text), tmp_path / "model.mnnx")
    done: Counter[str] = Counter()
    for result in report.passes:
        if result.name == name.split(" of ")[0]:
            done.update(result.counts)
    assert (dict(done), dict(report.ops_after)) == (counts, left)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_every_level_gives_the_reference_result(name: str, level: int, session_of) -> None:
    model = filled(MODELS[name][0])
    rng = np.random.default_rng(5)
    feed = {
        info.name: rng.standard_normal([d.dim_value for d in info.type.tensor_type.shape.dim]).astype(np.float32)
        for info in model.graph.input
    }
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    got = session_of(model, level=level).run(feed)["y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_documentation_has_the_table_of_passes() -> None:
    text = documentation.PAGE.read_text()
    assert documentation.page(text) == text, "run `make docs`"
    assert all(f"| {one.name} | {one.level} | " in text for one in list_passes())


def test_division_by_a_constant_becomes_a_product_at_level_3_only(tmp_path: Path) -> None:
    model = filled("agraph (float[2,3] x) => (float[2,3] y) <float[3] c> { y = Div(x, c) }")
    ops = [dict(mnnx.convert(model, tmp_path / "m.mnnx", level=level).ops_after) for level in (2, 3)]
    assert ops == [{"Div": 1}, {"Mul": 1}]


def test_fused_tensor_is_reported_with_its_pass_and_level(session_of) -> None:
    session = session_of(filled(MODELS["epilogue-fusion"][0]))
    feed = {"x": np.zeros((1, 3, 6, 6), np.float32), "r": np.zeros((1, 4, 6, 6), np.float32)}
    with pytest.raises(mnnx.InputError, match=r"'c' no longer exists: the pass epilogue-fusion took it away.*level=1"):
        session.run(feed, outputs=["c"])


def test_tensor_is_there_at_the_level_that_keeps_it(session_of) -> None:
    session = session_of(filled(MODELS["epilogue-fusion"][0]), level=1)
    feed = {"x": np.ones((1, 3, 6, 6), np.float32), "r": np.zeros((1, 4, 6, 6), np.float32)}
    assert session.run(feed, outputs=["c"])["c"].shape == (1, 4, 6, 6)
