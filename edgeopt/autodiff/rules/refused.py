"""Operators that are not differentiated, each with the reason that the user will read."""

from edgeopt.autodiff.registry import refuse

refuse(
    "it computes with integers, rounded away from what could be differentiated",
    "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    alternative="start from the model before quantization, or from one in QuantizeLinear/DequantizeLinear (QDQ) form",
)  # fmt: skip
refuse("it reads the bits of a number as those of another", "BitCast")
refuse(
    "which elements are the distinct ones changes with their values",
    "Unique",
    alternative="gather the elements by the indices that Unique gives",
)
refuse(
    "its score function is a graph of its own",
    "ai.onnx.preview::FlexAttention",
    alternative="write the attention with MatMul and Softmax",
)

_TREES = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
refuse("decision trees are piecewise constant", *(f"ai.onnx.ml::{name}" for name in _TREES))
_CLASSICAL = (
    "LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor",
)  # fmt: skip
refuse(
    "its coefficients are attributes, which cannot be trained",
    *(f"ai.onnx.ml::{name}" for name in _CLASSICAL),
    alternative="a linear model can be written as Gemm",
)
_FEATURES = (
    "ArrayFeatureExtractor", "Binarizer", "CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer",
    "Imputer", "LabelEncoder", "Normalizer", "OneHotEncoder", "ZipMap",
)  # fmt: skip
refuse(
    "it prepares features, and belongs in front of the model",
    *(f"ai.onnx.ml::{name}" for name in _FEATURES),
    alternative="compute the features outside of the graph",
)
_TRAINING = ("Adagrad", "Adam", "Gradient", "Momentum")
refuse(
    "it is part of somebody else's training step",
    *(f"ai.onnx.preview.training::{name}" for name in _TRAINING),
    alternative="start from the model that was to be trained",
)
