"""Small graphs of attention, as exporters write it."""

#: As in recognised.py.
ATTENTION = {
    "attention-recognition of queries that see no key": (
        """agraph (float[2,5,8] q, float[2,8,7] k, float[2,7,4] v, float[5,7] f, float[2,1,7] bias) => (float[2,5,4] y)
        <float zero = {0}, float lowest = {-1e38}>
        { s = MatMul(q, k)
          a = Add(bias, s)
          see = Less(f, zero)
          m = Where(see, a, lowest)
          p = Softmax<axis = -1>(m)
          n = IsNaN(p)
          w = Where(n, zero, p)
          y = MatMul(w, v) }""",
        {"attention": 1},
        {"Less": 1, "Where": 1, "mnnx::FusedAttention": 1},
    ),
    "attention-recognition of Attention between Transposes": (
        """agraph (float[2,5,12] x, float[2,7,6] z, float[2,1,5,7] mask) => (float[2,5,12] y)
        <float[12,12] w, int64[4] heads = {0, 0, 4, 3}, int64[4] fewer = {0, 0, 2, 3}, int64[3] rows = {0, 0, 12}>
        { p = MatMul(x, w)
          a = Reshape(p, heads)
          b = Reshape(z, fewer)
          q = Transpose<perm = [0, 2, 1, 3]>(a)
          k = Transpose<perm = [0, 2, 1, 3]>(b)
          o = Attention<is_causal = 1>(q, k, k, mask)
          t = Transpose<perm = [0, 2, 1, 3]>(o)
          y = Reshape(t, rows) }""",
        {"heads in rows": 1},
        {"MatMul": 1, "Attention": 1},
    ),
    "attention-recognition of Attention between Transposes of tensors of rank 4": (
        """agraph (float[2,5,4,3] x, float[2,7,4,3] z) => (float[2,5,4,3] y)
        { q = Transpose<perm = [0, 2, 1, 3]>(x)
          k = Transpose<perm = [0, 2, 1, 3]>(z)
          o = Attention<softcap = 2.0>(q, k, k)
          y = Transpose<perm = [0, 2, 1, 3]>(o) }""",
        {"heads in rows": 1},
        {"Reshape": 4, "Attention": 1},
    ),
    "attention-recognition of Attention with other operands than Transposes, too": (
        """agraph (float[2,4,5,3] q, float[2,7,2,3] z, float[2,7,2,6] u, float[5,7] f) => (float[2,5,4,6] y)
        <float zero = {0}>
        { k = Transpose<perm = [0, 2, 1, 3]>(z)
          v = Transpose<perm = [0, 2, 1, 3]>(u)
          see = Less(zero, f)
          o = Attention<is_causal = 1, scale = 0.7>(q, k, v, see)
          y = Transpose<perm = [0, 2, 1, 3]>(o) }""",
        {"Transposes around Attention": 1},
        {"Less": 1, "mnnx::FusedAttention": 1},
    ),
    "attention-recognition of Attention of the parts of one tensor": (
        """agraph (float[2,5,24] x, float[5,5] f) => (float[2,5,12] y)
        <float zero = {0}, int64[3] sizes = {12, 6, 6}>
        { q, k, v = Split<axis = -1>(x, sizes)
          see = Less(zero, f)
          y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1>(q, k, v, see) }""",
        {"parts of one tensor": 1},
        {"Less": 1, "mnnx::PackedAttention": 1},
    ),
    "attention-recognition of repeated heads": (
        """agraph (float[2,4,5,8] q, float[2,7,2,8] k, float[2,2,7,4] v) => (float[2,5,4,4] y)
        <int64[1] two = {2}, int64[5] wide_k = {2, 2, 2, 7, 8}, int64[4] all_k = {2, 4, 7, 8},
         int64[5] wide_v = {2, 2, 2, 7, 4}, int64[4] all_v = {2, 4, 7, 4}>
        { h = Transpose<perm = [0, 2, 1, 3]>(k)
          a = Unsqueeze(h, two)
          b = Expand(a, wide_k)
          c = Reshape(b, all_k)
          d = Unsqueeze(v, two)
          e = Expand(d, wide_v)
          f = Reshape(e, all_v)
          t = Transpose<perm = [0, 1, 3, 2]>(c)
          s = MatMul(q, t)
          p = Softmax<axis = -1>(s)
          o = MatMul(p, f)
          y = Transpose<perm = [0, 2, 1, 3]>(o) }""",
        {"attention": 1},
        {"mnnx::FusedAttention": 1},
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
}
