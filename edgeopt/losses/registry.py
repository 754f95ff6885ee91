"""Every loss by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.losses.base import Loss
from edgeopt.losses.binary import BCEWithLogits, BinaryFocal, Hinge
from edgeopt.losses.classification import NLL, Focal, MultiMargin
from edgeopt.losses.cross_entropy import CrossEntropy
from edgeopt.losses.ctc import CTC
from edgeopt.losses.distillation import Distillation
from edgeopt.losses.embeddings import CosineEmbedding, InfoNCE, MarginRanking, Triplet
from edgeopt.losses.likelihoods import GaussianNLL, KLDivergence, PoissonNLL
from edgeopt.losses.overlap import Dice, Tversky
from edgeopt.losses.regression import L1, MSE, Huber, LogCosh, Quantile, SmoothL1

__all__ = ["LOSS", "LOSSES"]

LOSSES: dict[str, type[Loss]] = {
    "bce_with_logits": BCEWithLogits,
    "binary_focal": BinaryFocal,
    "cosine_embedding": CosineEmbedding,
    "cross_entropy": CrossEntropy,
    "ctc": CTC,
    "dice": Dice,
    "distillation": Distillation,
    "focal": Focal,
    "gaussian_nll": GaussianNLL,
    "hinge": Hinge,
    "huber": Huber,
    "info_nce": InfoNCE,
    "kl_divergence": KLDivergence,
    "l1": L1,
    "log_cosh": LogCosh,
    "margin_ranking": MarginRanking,
    "mse": MSE,
    "multi_margin": MultiMargin,
    "nll": NLL,
    "poisson_nll": PoissonNLL,
    "quantile": Quantile,
    "smooth_l1": SmoothL1,
    "triplet": Triplet,
    "tversky": Tversky,
}

# Names that PyTorch and Keras have for the same formulas.
_ALIASES = {
    "bce_with_logits_loss": "bce_with_logits",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "clip": "info_nce",
    "clip_loss": "info_nce",
    "contrastive": "info_nce",
    "cosine_embedding_loss": "cosine_embedding",
    "cross_entropy_loss": "cross_entropy",
    "ctc_loss": "ctc",
    "gaussian_nll_loss": "gaussian_nll",
    "huber_loss": "huber",
    "l1_loss": "l1",
    "mae": "l1",
    "mean_absolute_error": "l1",
    "mean_squared_error": "mse",
    "margin_ranking_loss": "margin_ranking",
    "mse_loss": "mse",
    "multi_margin_loss": "multi_margin",
    "nll_loss": "nll",
    "pinball": "quantile",
    "pinball_loss": "quantile",
    "poisson_nll_loss": "poisson_nll",
    "sigmoid_focal_loss": "binary_focal",
    "smooth_l1_loss": "smooth_l1",
    "triplet_margin_loss": "triplet",
    "kl_div": "kl_divergence",
    "kl_div_loss": "kl_divergence",
}

_BINARY = "it reads probabilities; give 'bce_with_logits', and a model that ends in logits, without its Sigmoid"
_SPARSE = (
    "it reads probabilities unless from_logits=True; give 'cross_entropy', and a model that ends in logits, without "
    "its Softmax"
)
_KLD = "it reads probabilities; give 'kl_divergence', and a model that ends in log-probabilities"
_ONE_HOT = (
    "it reads probabilities and one-hot labels; give 'cross_entropy', a model that ends in logits, without its "
    "Softmax, and class indices"
)
LOSS = Kind(
    name="loss",
    base=Loss,  # type: ignore[type-abstract]  # only instances of it are made
    registry=LOSSES,
    example="edgeopt.losses.CrossEntropy()",
    aliases=_ALIASES,
    addable=True,
    elsewhere={
        "bce": _BINARY,
        "bce_loss": _BINARY,
        "binary_cross_entropy": _BINARY,
        "categorical_cross_entropy": _ONE_HOT,
        "kld": _KLD,
        "kullback_leibler_divergence": _KLD,
        "sparse_categorical_cross_entropy": _SPARSE,
    },
)
