"""Operators whose derivative is zero, or has no meaning, by nature."""

from edgeopt.autodiff.registry import zero_derivative

zero_derivative("a constant", "Constant", "ConstantOfShape", "EyeLike")
zero_derivative("a window of a given length", "BlackmanWindow", "HammingWindow", "HannWindow")
zero_derivative(
    "a comparison or a logical value",
    "And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor",
    "com.microsoft::IsAllFinite",
)  # fmt: skip
zero_derivative("an index", "ArgMax", "ArgMin", "NonMaxSuppression", "NonZero")
zero_derivative("a shape", "Shape", "Size")
zero_derivative("piecewise constant", "Ceil", "Floor", "Hardmax", "MelWeightMatrix", "Round", "Sign")
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
zero_derivative(
    "a function of text or bytes",
    "ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
    "com.microsoft::MurmurHash3", "com.microsoft::Tokenizer",
)  # fmt: skip
