"""Activations that exporters write out in small ops, and near misses."""

#: pass → (model, {rewrite: count}, ops that are left)
ACTIVATIONS = {
    "activation-recognition of Relu": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float zero = {0}>
        { y = Max(zero, x) }""",
        {"Clip": 1},
        {"Relu": 1},
    ),
    "activation-recognition of Clip": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float low = {-0.5}, float[1] high = {0.75}>
        { a = Max(x, low)
          y = Min(high, a) }""",
        {"Clip": 2},
        {"Clip": 1},
    ),
    "activation-recognition of Clip from above": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float low = {-0.5}, float high = {0.75}>
        { a = Min(x, high)
          y = Max(a, low) }""",
        {"Clip": 2},
        {"Clip": 1},
    ),
    "activation-recognition of Clip with bounds the wrong way round": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float low = {0.5}, float high = {-0.75}>
        { a = Min(x, high)
          y = Max(a, low) }""",
        {"Clip": 2},
        {"Clip": 2},
    ),
    "activation-recognition of a Relu that is cut": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float high = {0.75}>
        { a = Relu(x)
          y = Min(a, high) }""",
        {"Clip": 1},
        {"Clip": 1},
    ),
    "activation-recognition of LeakyRelu by Max": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float[1] alpha = {0.2}>
        { a = Mul(alpha, x)
          y = Max(x, a) }""",
        {"LeakyRelu": 1},
        {"LeakyRelu": 1},
    ),
    "activation-recognition of LeakyRelu, but not of steeper ones": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float alpha = {1.5}>
        { a = Mul(alpha, x)
          y = Max(x, a) }""",
        {},
        {"Mul": 1, "Max": 1},
    ),
    "activation-recognition of LeakyRelu by Where": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float alpha = {-0.3}, float zero = {0}>
        { c = LessOrEqual(x, zero)
          a = Mul(x, alpha)
          y = Where(c, a, x) }""",
        {"LeakyRelu": 1},
        {"LeakyRelu": 1},
    ),
    "activation-recognition of LeakyRelu, but not the other way round": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float alpha = {0.3}, float zero = {0}>
        { c = Greater(zero, x)
          a = Mul(x, alpha)
          y = Where(c, x, a) }""",
        {},
        {"Greater": 1, "Mul": 1, "Where": 1},
    ),
    "activation-recognition of PRelu": (
        """agraph (float[2,3,4] x) => (float[2,3,4] y)
        <float[3,1] slope = {-0.5, 0.25, -0.125}>
        { p = Relu(x)
          m = Neg(x)
          n = Relu(m)
          s = Mul(slope, n)
          y = Add(p, s) }""",
        {"PRelu": 1},
        {"PRelu": 1},
    ),
    "activation-recognition of Softplus": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float one = {1}>
        { e = Exp(x)
          a = Add(e, one)
          y = Log(a) }""",
        {"Softplus": 1},
        {"Softplus": 1},
    ),
    "activation-recognition of Mish with a threshold": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float threshold = {20}>
        { s = Softplus(x)
          c = Greater(x, threshold)
          w = Where(c, x, s)
          t = Tanh(w)
          y = Mul(x, t) }""",
        {"Softplus": 1, "Mish": 1},
        {"Mish": 1},
    ),
    "activation-recognition of Softplus, but not with a threshold that shows": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float threshold = {1}>
        { s = Softplus(x)
          c = Greater(x, threshold)
          y = Where(c, x, s) }""",
        {},
        {"Softplus": 1, "Greater": 1, "Where": 1},
    ),
    "activation-recognition of Softsign": (
        """agraph (float[2,9] x) => (float[2,9] y)
        <float one = {1}>
        { a = Abs(x)
          b = Add(one, a)
          y = Div(x, b) }""",
        {"Softsign": 1},
        {"Softsign": 1},
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
}
