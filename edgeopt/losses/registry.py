"""Every loss by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.losses.base import Loss
from edgeopt.losses.binary import BCEWithLogits
from edgeopt.losses.cross_entropy import CrossEntropy
from edgeopt.losses.regression import L1, MSE, Huber

__all__ = ["LOSS", "LOSSES"]

LOSSES: dict[str, type[Loss]] = {
    "bce_with_logits": BCEWithLogits,
    "cross_entropy": CrossEntropy,
    "huber": Huber,
    "l1": L1,
    "mse": MSE,
}

# Names that PyTorch and Keras have for the same formulas.
_ALIASES = {
    "bce_with_logits_loss": "bce_with_logits",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "cross_entropy_loss": "cross_entropy",
    "huber_loss": "huber",
    "l1_loss": "l1",
    "mae": "l1",
    "mean_absolute_error": "l1",
    "mean_squared_error": "mse",
    "mse_loss": "mse",
}

_BINARY = "it reads probabilities; give 'bce_with_logits', and a model that ends in logits, without its Sigmoid"
_SPARSE = (
    "it reads probabilities unless from_logits=True; give 'cross_entropy', and a model that ends in logits, without "
    "its Softmax"
)
_ONE_HOT = (
    "it reads probabilities and one-hot labels; give 'cross_entropy', a model that ends in logits, without its "
    "Softmax, and class indices"
)
_NLL = (
    "it reads log-probabilities; give 'cross_entropy', which computes the same from those, and from logits without the "
    "LogSoftmax"
)

LOSS = Kind(
    name="loss",
    base=Loss,  # type: ignore[type-abstract]  # only instances of it are made
    registry=LOSSES,
    example="edgeopt.losses.CrossEntropy()",
    aliases=_ALIASES,
    elsewhere={
        "bce": _BINARY,
        "bce_loss": _BINARY,
        "binary_cross_entropy": _BINARY,
        "categorical_cross_entropy": _ONE_HOT,
        "nll": _NLL,
        "nll_loss": _NLL,
        "sparse_categorical_cross_entropy": _SPARSE,
    },
)
