"""Operators whose derivative is zero, or has no meaning, by nature."""

from edgeopt.autodiff.registry import zero_derivative

zero_derivative("a constant", "Constant", "ConstantOfShape", "EyeLike", "Range")
zero_derivative(
    "a comparison or a logical value",
    "And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor",
)  # fmt: skip
zero_derivative("an index", "ArgMax", "ArgMin", "NonZero")
zero_derivative("a shape", "Shape", "Size")
zero_derivative("piecewise constant", "Ceil", "Floor", "Round", "Sign")
zero_derivative("integer arithmetic", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")
zero_derivative(
    "random numbers",
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
