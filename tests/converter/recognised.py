"""Small graphs in which passes recognise an op that exporters write out."""

from tests.converter.recognised_activations import ACTIVATIONS
from tests.converter.recognised_attention import ATTENTION

#: pass → (model, {rewrite: count}, ops that are left)
RECOGNISED = (
    ACTIVATIONS
    | ATTENTION
    | {
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
        "rotary-recognition of sequences that are alike": (
            """agraph (float[2,3,2,4] x) => (float[2,3,2,4] y)
        <float[2,4] c = {0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.75}, float[2,4] s = {0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4}>
        { a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c, x)
          q = Mul(s, r)
          y = Add(q, p) }""",
            {"RotaryEmbedding": 1},
            {"RotaryEmbedding": 1},
        ),
        "rotary-recognition of the first columns by rows of longer tables": (
            """agraph (float[2,3,2,6] x) => (float[2,3,2,6] y)
        <float[1,1,3,4] c = {9, 9, 9, 9, 0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.75},
         float[1,1,3,4] s = {9, 8, 9, 8, 0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4},
         int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] four = {4}, int64[1] six = {6}>
        { z = Slice(x, zero, four, three)
          e = Slice(x, four, six, three)
          c1 = Slice(c, one, three, two)
          s1 = Slice(s, one, three, two)
          a, b = Split<axis = -1, num_outputs = 2>(z)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c1, z)
          q = Mul(s1, r)
          t = Add(q, p)
          y = Concat<axis = -1>(t, e) }""",
            {"RotaryEmbedding": 1, "columns that aren't rotated": 1},
            {"RotaryEmbedding": 1},
        ),
        "skip-norm-fusion of LayerNormalization, with a vector": (
            """agraph (float[2,3,8] x, float[3,8] skip) => (float[2,3,8] y)
        <float[8] scale, float[8] bias, float[8] shift>
        { a = Add(shift, x)
          s = Add(skip, a)
          y = LayerNormalization(s, scale, bias) }""",
            {"sum into normalization": 1},
            {"com.microsoft::SkipLayerNormalization": 1},
        ),
        "skip-norm-fusion of RMSNormalization, whose sum is used again": (
            """agraph (float[2,3,8] x, float[2,3,8] z) => (float[2,3,8] y)
        <float[8] scale>
        { s = Add(x, z)
          n = RMSNormalization(s, scale)
          y = Sub(s, n) }""",
            {"sum into normalization": 1},
            {"com.microsoft::SkipSimplifiedLayerNormalization": 1, "Sub": 1},
        ),
        "epilogue-fusion of a bias behind a residual sum": (
            """agraph (float[2,3,8] x, float[2,3,6] r) => (float[2,3,6] y)
        <float[8,6] w, float[6] bias>
        { m = MatMul(x, w)
          s = Add(m, r)
          y = Add(s, bias) }""",
            {"residual sum": 1, "bias into MatMul": 1},
            {"mnnx::FusedMatMul": 1},
        ),
        "movement of dims that are split behind a Transpose": (
            """agraph (float[5,2,12] x) => (float[2,3,5,4] y)
        <int64[3] merged = {5, 6, 4}, int64[4] whole = {2, 3, 5, 4}>
        { a = Reshape(x, merged)
          b = Transpose<perm = [1, 0, 2]>(a)
          y = Reshape(b, whole) }""",
            {"split before a Transpose": 1},
            {"Reshape": 1, "Transpose": 1},
        ),
        "movement of three operands that one product made": (
            """agraph (float[5,2,12] x) => (float[5,2,12] y)
        <int64[4] parts = {5, 2, 3, 4}, int64[1] zero = {0}, int64[1] last = {-2},
         int64 first = {0}, int64 second = {-2}, int64 third = {2}>
        { a = Reshape(x, parts)
          b = Unsqueeze(a, zero)
          c = Transpose<perm = [3, 1, 2, 0, 4]>(b)
          d = Squeeze(c, last)
          q = Gather(d, first)
          k = Gather(d, second)
          v = Gather(d, third)
          y = Concat<axis = -1>(v, k, q) }""",
            {"Transpose of one dim more": 1, "place before a Transpose": 3},
            {"Reshape": 1, "Gather": 3, "Concat": 1},
        ),
        "movement of the places of a Split": (
            """agraph (float[2,5,2,4,8] x) => (float[2,4,5,5] y)
        <int64[1] zero = {0}>
        { a = Transpose<perm = [2, 0, 3, 1, 4]>(x)
          b, c = Split<axis = 0, num_outputs = 2>(a)
          q = Squeeze(b, zero)
          k = Squeeze(c, zero)
          t = Transpose<perm = [0, 1, 3, 2]>(k)
          y = MatMul(q, t) }""",
            {"place of a Split": 2, "place before a Transpose": 2, "Transpose of Transpose": 1},
            {"Gather": 2, "Transpose": 2, "MatMul": 1},
        ),
        "epilogue-fusion of a product of rows": (
            """agraph (float[2,5,3,4] x) => (float[2,5,6] y)
        <int64[2] rows = {-1, 12}, float[12,6] w, int64[3] back = {2, 5, 6}, float[6] b>
        { a = Reshape(x, rows)
          m = Gemm(a, w, b)
          c = Reshape(m, back)
          y = Relu(c) }""",
            {"Gemm to MatMul": 1, "product of rows": 1, "activation": 1},
            {"Reshape": 1, "mnnx::FusedMatMul": 1},
        ),
        "movement of dims that are merged for a Transpose": (
            """agraph (float[2,3,5,4] x) => (float[2,3,4,5] y)
        <int64[3] merged = {-1, 5, 4}, int64[4] whole = {2, 3, 4, 5}>
        { a = Reshape(x, merged)
          b = Transpose<perm = [0, 2, 1]>(a)
          y = Reshape(b, whole) }""",
            {"split before a Transpose": 1},
            {"Transpose": 1},
        ),
        "movement of Slices of all parts": (
            """agraph (float[2,9] x) => (float[2,9] y)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] minus_two = {-2}, int64[1] one = {1}, int64[1] all = {99}>
        { b = Slice(x, minus_two, all, one)
          a = Slice(x, zero, four, one)
          c = Slice(x, four, minus_two, one)
          y = Concat<axis = 1>(b, c, a) }""",
            {"Slices of all parts": 1},
            {"Split": 1, "Concat": 1},
        ),
        "movement of Slices, but not of some parts": (
            """agraph (float[2,9] x) => (float[2,7] y)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] minus_two = {-2}, int64[1] one = {1}>
        { a = Slice(x, zero, four, one)
          c = Slice(x, four, minus_two, one)
          y = Concat<axis = 1>(c, a) }""",
            {},
            {"Slice": 2, "Concat": 1},
        ),
        "movement of Slices, but not of parts that overlap": (
            """agraph (float[2,9] x) => (float[2,5] y)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] five = {5}, int64[1] all = {99}, int64[1] one = {1}>
        { a = Slice(x, zero, five, one)
          c = Slice(x, four, all, one)
          y = Sub(a, c) }""",
            {},
            {"Slice": 2, "Sub": 1},
        ),
    }
)
