"""Models that look like a pattern of a pass but must be left alone."""

#: what → (model, the ops that stay)
LEFT_ALONE = {
    "a product used twice keeps its activation apart": (
        """agraph (float[2,8] x) => (float[2,6] y, float[2,6] z)
        <float[8,6] w>
        { z = MatMul(x, w)
          y = Relu(z) }""",
        {"MatMul": 1, "Relu": 1},
    ),
    "a residual that broadcasts is no residual": (
        """agraph (float[1,3,6,6] x, float[1,4,1,1] r) => (float[1,4,6,6] y)
        <float[4,3,1,1] w>
        { c = Conv(x, w)
          y = Add(c, r) }""",
        {"Conv": 1, "Add": 1},
    ),
    "a sum before a normalization that a product ends in": (
        """agraph (float[2,3,8] x, float[2,3,6] r) => (float[2,3,6] y)
        <float[8,6] w, float[6] scale, float[6] bias>
        { m = MatMul(x, w)
          s = Add(m, r)
          y = LayerNormalization(s, scale, bias) }""",
        {"mnnx::FusedMatMul": 1, "LayerNormalization": 1},
    ),
    "a sum that broadcasts along the rows that are normalized": (
        """agraph (float[2,3,8] x, float[2,3,1] r) => (float[2,3,8] y)
        <float[8] scale, float[8] bias>
        { s = Add(x, r)
          y = LayerNormalization(s, scale, bias) }""",
        {"Add": 1, "LayerNormalization": 1},
    ),
    "Attention whose mask is shorter than its keys": (
        """agraph (float[2,4,5,3] q, float[2,7,4,3] z, float[5,6] mask) => (float[2,4,5,3] y)
        { k = Transpose<perm = [0, 2, 1, 3]>(z)
          y = Attention(q, k, k, mask) }""",
        {"Transpose": 1, "Attention": 1},
    ),
    "a factor per channel behind HardSwish": (
        """agraph (float[1,3,6,6] x) => (float[1,4,6,6] y)
        <float[4,3,1,1] w, float[4,1,1] s>
        { c = Conv(x, w)
          h = HardSwish(c)
          y = Mul(h, s) }""",
        {"mnnx::FusedConv": 1, "Mul": 1},
    ),
    "a HardSwish that is used twice": (
        """agraph (float[1,3,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] z)
        <float[4,3,1,1] w, float s>
        { c = Conv(x, w)
          h = HardSwish(c)
          y = Mul(h, s)
          z = Exp(h) }""",
        {"mnnx::FusedConv": 1, "Mul": 1, "Exp": 1},
    ),
    "a mean of squares of something else": (
        """agraph (float[2,8] x, float[2,8] z) => (float[2,8] y)
        <int64[1] last = {-1}, float epsilon = {0.001}, float[8] gamma>
        { s = Mul(z, z)
          m = ReduceMean(s, last)
          e = Add(m, epsilon)
          r = Sqrt(e)
          n = Div(x, r)
          y = Mul(n, gamma) }""",
        {"Mul": 2, "ReduceMean": 1, "Add": 1, "Sqrt": 1, "Div": 1},
    ),
    "a deviation that is used elsewhere": (
        """agraph (float[2,8] x) => (float[2,8] y, float[2,1] r)
        <int64[1] last = {-1}, float epsilon = {0.001}>
        { m = ReduceMean(x, last)
          d = Sub(x, m)
          s = Mul(d, d)
          v = ReduceMean(s, last)
          e = Add(v, epsilon)
          r = Sqrt(e)
          y = Div(d, r) }""",
        {"ReduceMean": 2, "Sub": 1, "Mul": 1, "Add": 1, "Sqrt": 1, "Div": 1},
    ),
    "the difference to a mean over other axes": (
        """agraph (float[2,8] x) => (float[2,8] y)
        <int64[1] last = {-1}, int64[1] first = {0}, float epsilon = {0.001}>
        { m = ReduceMean(x, first)
          d = Sub(x, m)
          s = Mul(d, d)
          v = ReduceMean(s, first)
          e = Add(v, epsilon)
          r = Sqrt(e)
          y = Div(d, r) }""",
        {"ReduceMean": 2, "Sub": 1, "Mul": 1, "Add": 1, "Sqrt": 1, "Div": 1},
    ),
    "a shift per row behind LayerNormalization": (
        """agraph (float[2,3,8] x) => (float[2,3,8] y)
        <float[8] scale, float[3,8] shift>
        { n = LayerNormalization(x, scale)
          y = Add(n, shift) }""",
        {"LayerNormalization": 1, "Add": 1},
    ),
    "a LayerNormalization that is used twice": (
        """agraph (float[3,8] x) => (float[3,8] y, float[3,8] n)
        <float[8] scale, float[8] shift>
        { n = LayerNormalization(x, scale)
          y = Add(n, shift) }""",
        {"LayerNormalization": 1, "Add": 1},
    ),
    "a shift of what isn't centred": (
        """agraph (float[2,8] x) => (float[2,8] y)
        <int64[1] last = {-1}, float epsilon = {0.001}, float[8] gamma, float[8] beta>
        { s = Mul(x, x)
          m = ReduceMean(s, last)
          e = Add(m, epsilon)
          r = Sqrt(e)
          n = Div(x, r)
          g = Mul(n, gamma)
          y = Add(g, beta) }""",
        {"RMSNormalization": 1, "Add": 1},
    ),
    "another cubic than that of Gelu": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float k = {0.0548}, float c = {0.79788456}, float one = {1}, float half = {0.5}, float three = {3}>
        { h = Mul(x, half)
          p = Pow(x, three)
          q = Mul(p, k)
          r = Add(x, q)
          s = Mul(r, c)
          t = Tanh(s)
          a = Add(t, one)
          y = Mul(h, a) }""",
        {"Mul": 4, "Pow": 1, "Add": 2, "Tanh": 1},
    ),
    "a number of Gelu that adds dims": (
        """agraph (float[2,9] x) => (float[1,2,9] y)
        <float root = {1.4142135}, float[1,1,1] one = {1}, float half = {0.5}>
        { d = Div(x, root)
          e = Erf(d)
          a = Add(e, one)
          h = Mul(x, half)
          y = Mul(h, a) }""",
        {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2},
    ),
    "groups that are reshaped to something else": (
        """agraph (float[2,6,3,4] x) => (float[2,6,4,3] y)
        <int64[3] groups = {0, 2, -1}, int64[4] other = {2, 6, 4, 3}, float[2] one, float[2] zero, float[6,1,1] gamma, float[6,1,1] beta>
        { a = Reshape(x, groups)
          b = InstanceNormalization(a, one, zero)
          c = Reshape(b, other)
          d = Mul(c, gamma)
          y = Add(d, beta) }""",
        {"Reshape": 2, "InstanceNormalization": 1, "Mul": 1, "Add": 1},
    ),
    "padding with ones stays": (
        """agraph (float[1,3,6,6] x) => (float[1,4,6,6] y)
        <float[4,3,3,3] w, int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, float one = {1}>
        { p = Pad(x, pads, one)
          y = Conv(p, w) }""",
        {"Pad": 1, "Conv": 1},
    ),
    "a shift along the width isn't per channel": (
        """agraph (float[1,3,6,4] x) => (float[1,4,6,4] y)
        <float[4,3,1,1] w, float[4] shift>
        { c = Conv(x, w)
          y = Add(c, shift) }""",
        {"Conv": 1, "Add": 1},
    ),
    "attention whose weights are an output": (
        """agraph (float[2,5,8] q, float[2,8,7] k, float[2,7,4] v) => (float[2,5,4] y, float[2,5,7] p)
        { s = MatMul(q, k)
          p = Softmax<axis = -1>(s)
          y = MatMul(p, v) }""",
        {"MatMul": 2, "Softmax": 1},
    ),
    "attention whose scores are used again": (
        """agraph (float[2,5,8] q, float[2,8,7] k, float[2,7,4] v) => (float[2,5,4] y, float[2,5,7] z)
        { s = MatMul(q, k)
          p = Softmax<axis = -1>(s)
          y = MatMul(p, v)
          z = Exp(s) }""",
        {"MatMul": 2, "Softmax": 1, "Exp": 1},
    ),
    "a softmax over the queries is no attention": (
        """agraph (float[2,7,8] q, float[2,8,7] k, float[2,7,4] v) => (float[2,7,4] y)
        { s = MatMul(q, k)
          p = Softmax<axis = 1>(s)
          y = MatMul(p, v) }""",
        {"MatMul": 2, "Softmax": 1},
    ),
    "a one that broadcasts changes the shape": (
        """agraph (float[3] x) => (float[1,3] y, float[3,3] z)
        <float[1,1] one = {1}, float[3,1] zeros = {0, 0, 0}>
        { y = Mul(x, one)
          z = Add(x, zeros) }""",
        {"Mul": 1, "Add": 1},
    ),
    "a Cast that loses something stays": (
        """agraph (float[3] x) => (float[3] y, int32[3] z)
        { a = Cast<to = 10>(x)
          y = Cast<to = 1>(a)
          b = Cast<to = 11>(x)
          z = Cast<to = 6>(b) }""",
        {"Cast": 4},
    ),
    "a rotation whose halves of cos differ": (
        """agraph (float[1,3,2,4] x) => (float[1,3,2,4] y)
        <float[2,4] c = {0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.7}, float[2,4] s = {0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4}>
        { a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c, x)
          q = Mul(s, r)
          y = Add(q, p) }""",
        {"Split": 1, "Neg": 1, "Concat": 1, "Mul": 2, "Add": 1},
    ),
    "a rotation in the other order": (
        """agraph (float[1,3,2,4] x) => (float[1,3,2,4] y)
        <float[2,4] c = {0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.75}, float[2,4] s = {0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4}>
        { a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(a, n)
          p = Mul(c, x)
          q = Mul(s, r)
          y = Add(q, p) }""",
        {"Split": 1, "Neg": 1, "Concat": 1, "Mul": 2, "Add": 1},
    ),
    "a rotation that is an output": (
        """agraph (float[1,3,2,4] x) => (float[1,3,2,4] y, float[1,3,2,4] r)
        <float[2,4] c = {0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.75}, float[2,4] s = {0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4}>
        { a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c, x)
          q = Mul(s, r)
          y = Add(q, p) }""",
        {"Split": 1, "Neg": 1, "Concat": 1, "Mul": 2, "Add": 1},
    ),
    "a rotation by the same angles for all positions": (
        """agraph (float[2,3,2,4] x) => (float[2,3,2,4] y)
        <float[1,4] c = {0.5, 0.25, 0.5, 0.25}, float[1,4] s = {0.1, 0.2, 0.1, 0.2}>
        { a, b = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c, x)
          q = Mul(s, r)
          y = Add(q, p) }""",
        {"Split": 1, "Neg": 1, "Concat": 1, "Mul": 2, "Add": 1},
    ),
    "the first columns, rotated, and the others in another order": (
        """agraph (float[2,3,2,6] x) => (float[2,3,2,6] y)
        <float[2,4] c = {0.5, 0.25, 0.5, 0.25, 1, 0.75, 1, 0.75}, float[2,4] s = {0.1, 0.2, 0.1, 0.2, 0.3, 0.4, 0.3, 0.4},
         int64[2] parts = {4, 2}>
        { z, e = Split<axis = -1>(x, parts)
          a, b = Split<axis = -1, num_outputs = 2>(z)
          n = Neg(b)
          r = Concat<axis = -1>(n, a)
          p = Mul(c, z)
          q = Mul(s, r)
          t = Add(q, p)
          y = Concat<axis = -1>(e, t) }""",
        {"Split": 1, "RotaryEmbedding": 1, "Concat": 1},
    ),
    "weights that are 1 in the place of NaN": (
        """agraph (float[2,5,8] q, float[2,8,7] k, float[2,7,4] v) => (float[2,5,4] y)
        <float one = {1}>
        { s = MatMul(q, k)
          p = Softmax<axis = -1>(s)
          n = IsNaN(p)
          w = Where(n, one, p)
          y = MatMul(w, v) }""",
        {"MatMul": 2, "Softmax": 1, "IsNaN": 1, "Where": 1},
    ),
    "scores with a number in their place that isn't lowest": (
        """agraph (float[2,5,8] q, float[2,8,7] k, float[2,7,4] v, bool[5,7] m) => (float[2,5,4] y)
        <float low = {-100}>
        { s = MatMul(q, k)
          t = Where(m, s, low)
          p = Softmax<axis = -1>(t)
          y = MatMul(p, v) }""",
        {"MatMul": 2, "Softmax": 1, "Where": 1},
    ),
    "heads in turn are not neighbouring heads": (
        """agraph (float[2,4,5,8] q, float[2,2,8,7] k, float[2,2,7,4] v) => (float[2,4,5,4] y)
        <int64[1] one = {1}, int64[5] wide_k = {2, 2, 2, 8, 7}, int64[4] all_k = {2, 4, 8, 7},
         int64[5] wide_v = {2, 2, 2, 7, 4}, int64[4] all_v = {2, 4, 7, 4}>
        { a = Unsqueeze(k, one)
          b = Expand(a, wide_k)
          c = Reshape(b, all_k)
          d = Unsqueeze(v, one)
          e = Expand(d, wide_v)
          f = Reshape(e, all_v)
          s = MatMul(q, c)
          p = Softmax<axis = -1>(s)
          y = MatMul(p, f) }""",
        {"Unsqueeze": 2, "Expand": 2, "Reshape": 2, "mnnx::FusedAttention": 1},
    ),
    "a Slice, a Pad and a Reshape that do something stay": (
        """agraph (float[2,3] x) => (float[1,3] a, float[2,4] b, float[3,2] c, float[2,3] d)
        <int64[1] first = {0}, int64[1] one = {1}, int64[4] pads = {0, 0, 0, 1}, int64[2] shape = {3, 2}, int64[1] back = {-1},
         int64[1] end = {-9223372036854775807}, int64[1] step = {-1}>
        { a = Slice(x, first, one)
          b = Pad(x, pads)
          c = Reshape(x, shape)
          d = Slice(x, back, end, first, step) }""",
        {"Slice": 2, "Pad": 1, "Reshape": 1},
    ),
    "random numbers are not merged": (
        """agraph (float[2,3] x) => (float[2,3] y)
        { a = RandomNormalLike(x)
          b = RandomNormalLike(x)
          y = Sub(a, b) }""",
        {"RandomNormalLike": 2, "Sub": 1},
    ),
    "a HardSigmoid of integers": (
        """agraph (int32[9] x) => (int32[9] y)
        <int32 three = {3}, int32 zero = {0}, int32 six = {6}>
        { a = Add(x, three)
          b = Clip(a, zero, six)
          y = Div(b, six) }""",
        {"Add": 1, "Clip": 1, "Div": 1},
    ),
    "a HardSwish of integers": (
        """agraph (int32[9] x) => (int32[9] y)
        <int32 three = {3}, int32 zero = {0}, int32 six = {6}>
        { a = Add(x, three)
          b = Clip(a, zero, six)
          c = Mul(x, b)
          y = Div(c, six) }""",
        {"Add": 1, "Clip": 1, "Mul": 1, "Div": 1},
    ),
    "a LeakyRelu that gives NaN of inf": (
        """agraph (float[9] x) => (float[9] y)
        <float zero = {0}>
        { a = Mul(x, zero)
          y = Max(x, a) }""",
        {"Mul": 1, "Max": 1},
    ),
    "a part of a Split behind a longer one": (
        """agraph (float[3,2] x) => (float[2] y)
        <int64[3] sizes = {2, 1, 0}, int64[1] first = {0}>
        { a, b, c = Split<axis = 0>(x, sizes)
          y = Squeeze(b, first) }""",
        {"Split": 1, "Squeeze": 1},
    ),
    "a number of a higher rank in HardSigmoid": (
        """agraph (float[4] x) => (float[1,4] y)
        <float[1,1] three = {3}, float zero = {0}, float six = {6}>
        { a = Add(x, three)
          b = Clip(a, zero, six)
          y = Div(b, six) }""",
        {"Add": 1, "Clip": 1, "Div": 1},
    ),
    "a number in HardSwish that is a vector beside what may be none": (
        """agraph (float[N] x, int64[K] s) => (float y)
        <float[1] three = {3}, float zero = {0}, float six = {6}>
        { r = Reshape(x, s)
          a = Add(r, three)
          b = Clip(a, zero, six)
          c = Mul(b, r)
          y = Div(c, six) }""",
        {"Reshape": 1, "Add": 1, "Clip": 1, "Mul": 1, "Div": 1},
    ),
    "a number in Gelu that is a matrix beside what may be none": (
        """agraph (float[N] x, int64[K] s) => (float y)
        <float[1,1] root = {1.4142135}, float one = {1}, float half = {0.5}>
        { r = Reshape(x, s)
          a = Div(r, root)
          b = Erf(a)
          c = Add(b, one)
          d = Mul(r, half)
          y = Mul(d, c) }""",
        {"Reshape": 1, "Div": 1, "Erf": 1, "Add": 1, "Mul": 2},
    ),
    "a number of a higher rank in Gelu": (
        """agraph (float[4] x) => (float[1,4] y)
        <float root = {1.4142135}, float one = {1}, float[1,1] half = {0.5}>
        { a = Div(x, root)
          b = Erf(a)
          c = Add(b, one)
          d = Mul(x, half)
          y = Mul(d, c) }""",
        {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2},
    ),
    "an epsilon of a higher rank in LayerNormalization": (
        """agraph (float[2,8] x) => (float[1,2,8] y)
        <int64[1] last = {-1}, float two = {2}, float[1,1,1] epsilon = {0.001}, float[8] gamma, float[8] beta>
        { a = ReduceMean(x, last)
          b = Sub(x, a)
          c = Pow(b, two)
          d = ReduceMean(c, last)
          e = Add(d, epsilon)
          f = Sqrt(e)
          g = Div(b, f)
          h = Mul(g, gamma)
          y = Add(h, beta) }""",
        {"ReduceMean": 2, "Sub": 1, "Pow": 1, "Add": 2, "Sqrt": 1, "Div": 1, "Mul": 1},
    ),
    "an epsilon of a higher rank in RMSNormalization": (
        """agraph (float[2,8] x) => (float[1,2,8] y)
        <int64[1] last = {-1}, float[1,1,1] epsilon = {0.001}, float[8] gamma>
        { s = Mul(x, x)
          m = ReduceMean(s, last)
          e = Add(m, epsilon)
          r = Sqrt(e)
          n = Div(x, r)
          y = Mul(n, gamma) }""",
        {"Mul": 2, "ReduceMean": 1, "Add": 1, "Sqrt": 1, "Div": 1},
    ),
}
