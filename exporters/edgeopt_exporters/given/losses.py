"""Losses of PyTorch and Keras: modules, functions and their settings."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import onnx
import onnx_ir as ir

from edgeopt.canonical import canonicalize
from edgeopt.components import described
from edgeopt.errors import ConfigurationError
from edgeopt.losses import (
    CTC,
    L1,
    LOSS,
    MSE,
    NLL,
    BCEWithLogits,
    CosineEmbedding,
    CrossEntropy,
    FromONNX,
    GaussianNLL,
    Huber,
    KLDivergence,
    Loss,
    MarginRanking,
    MultiMargin,
    PoissonNLL,
    SmoothL1,
    Triplet,
    WeightedSum,
    from_function,
    is_array_program,
)
from edgeopt.optimizers.config.options import Options
from edgeopt_exporters.onnx_file.reading import of_bytes, read

__all__ = ["as_loss"]


def as_loss(loss: Any) -> Loss:
    """The loss that was given: one of edgeopt's, its class or name; or a module or function of PyTorch with an equal.

    Raises:
        ConfigurationError: It is something else, or it or one of its settings has no equal here.
        UnsupportedModelError: It is an ONNX model that cannot be read.
    """
    if is_array_program(loss):
        return from_function(loss)
    if isinstance(loss, Loss) and any(isinstance(each, FromONNX) for _, each in loss.parts()):
        return _with_models_read(loss)
    if isinstance(loss, (Loss, str)) or (isinstance(loss, type) and issubclass(loss, Loss)):
        return LOSS.one(loss)
    function, settings = (loss.func, loss.keywords) if isinstance(loss, functools.partial) else (loss, {})
    module = str(getattr(function, "__module__", ""))
    if inspect.isfunction(function) and module == "torch.nn.functional":
        if isinstance(loss, functools.partial) and loss.args:
            raise ConfigurationError(f"Give the settings of {function.__name__} by name, not by place.")
        return _converted(f"torch.nn.functional.{function.__name__}", function.__name__, settings)
    if isinstance(function, type) and function.__module__.startswith("torch.nn."):
        function = function(**settings)
    kind = type(function)
    # Not a class derived from one of PyTorch's, whose forward may compute anything.
    if kind.__module__ == "torch.nn.modules.loss":
        return _converted(f"torch.nn.{kind.__name__}", kind.__name__, _settings(function))
    if module.startswith("keras") or kind.__module__.startswith(("keras", "tensorflow", "tf_keras")):
        return _of_keras(function)
    if module.partition(".")[0] == "optax":
        raise ConfigurationError(
            f"A function of optax cannot be looked into; give its equal here, {LOSS.example} or MSE()."
        )
    if callable(function) and not isinstance(function, type):
        raise ConfigurationError(
            f"A loss must be an array program that becomes a graph, and {described(function)} is none; give one of "
            f"edgeopt's, {LOSS.example}, or a class of yours derived from edgeopt.losses.Loss. A function of traced "
            "arrays has xp as its first parameter; for a module or function of PyTorch, give "
            "edgeopt.losses.from_torch(loss, targets={'target': an example})."
        )
    return LOSS.one(loss)


def _with_models_read(loss: Loss) -> Loss:
    """The loss, whose ONNX models are in canonical form."""
    if isinstance(loss, FromONNX):
        given = loss.model
        if not isinstance(given, (str, os.PathLike, bytes, onnx.ModelProto, ir.Model)):
            raise ConfigurationError(f"A loss model must be a path, bytes or a ModelProto; got {described(given)}.")
        return replace(loss, model=canonicalize(read(of_bytes(given) if isinstance(given, bytes) else given)))
    return (
        WeightedSum(tuple((factor, _with_models_read(each)) for factor, each in loss.parts()))
        if isinstance(loss, WeightedSum)
        else loss
    )


def _settings(module: Any) -> dict[str, Any]:
    """The settings of a loss module, which it keeps under the names of its constructor."""
    names = inspect.signature(type(module).__init__).parameters
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _of_keras(loss: Any) -> Loss:
    """Refuse a loss of Keras with what is meant by its name.

    Its settings (`from_logits`, the axis, how the mean is taken) differ too much to be guessed.
    """
    name = getattr(loss, "__name__", type(loss).__name__)
    try:
        equal = LOSS.find(name).__name__
    except ConfigurationError as error:
        raise ConfigurationError(f"A loss of Keras is not taken over. {error}") from error
    raise ConfigurationError(
        f"{described(loss).capitalize()} is not taken over; its equal is edgeopt.losses.{equal}()."
    )


def _reduction(o: Options, **more: dict[str, Any]) -> dict[str, Any]:
    """The settings that a reduction is here; `more` are those of reductions that only some losses have."""
    # What PyTorch had before `reduction`; modules have turned them into it.
    for name in ("size_average", "reduce"):
        o.only(name, None, because="is out of date: give reduction")
    reduction = o.take("reduction", "mean")
    if reduction in more:
        return more[reduction]
    if reduction not in ("mean", "sum"):
        o.refuse(f"reduction={reduction!r} leaves no number to minimise: give reduction='mean' or 'sum'")
    return {"reduction": reduction}


def _numbers(o: Options, name: str) -> Any:
    """A tensor of at most one axis as numbers; one number alone holds for all."""
    value = o.take(name)
    if value is None:
        return None
    if value.ndim > 1:
        o.refuse(f"{name} has the shape {tuple(value.shape)}, and here it has one axis at most")
    values = value.detach().cpu().tolist()
    return values if value.numel() != 1 or name == "weight" else values[0] if value.ndim else values


def _cross_entropy(o: Options) -> Loss:
    weight, ignored = _numbers(o, "weight"), o.count("ignore_index", -100)
    smoothing = o.number("label_smoothing", 0.0)
    return CrossEntropy(weight, smoothing, ignored, **_reduction(o))


def _bce_with_logits(o: Options) -> Loss:
    o.only(
        "weight",
        None,
        because="weighs elements of the batch; samples are weighed by a batch input, sample_weight='...'",
    )
    return BCEWithLogits(_numbers(o, "pos_weight"), **_reduction(o))


def _huber(o: Options) -> Loss:
    o.only(
        "weight",
        None,
        because="weighs elements of the batch; samples are weighed by a batch input, sample_weight='...'",
    )
    return Huber(o.number("delta", 1.0), **_reduction(o))


def _smooth_l1(o: Options) -> Loss:
    o.only(
        "weight",
        None,
        because="weighs elements of the batch; samples are weighed by a batch input, sample_weight='...'",
    )
    beta = o.number("beta", 1.0)
    return SmoothL1(beta, **_reduction(o)) if beta else L1(**_reduction(o))


def _nll(o: Options) -> Loss:
    weight, ignored = _numbers(o, "weight"), o.count("ignore_index", -100)
    return NLL(weight, ignored, **_reduction(o))


def _kl_divergence(o: Options) -> Loss:
    log_target = o.flag("log_target", False)
    return KLDivergence(log_target, **_reduction(o, batchmean={}, mean={"mean_over": "elements"}))


def _ctc(o: Options) -> Loss:
    blank, zero_infinity = o.count("blank", 0), o.flag("zero_infinity", False)
    return CTC(blank, zero_infinity, time_first=True, **_reduction(o))


def _multi_margin(o: Options) -> Loss:
    p, margin, weight = o.count("p", 1), o.number("margin", 1.0), _numbers(o, "weight")
    # Another p is refused by the class.
    return MultiMargin(weight, p=cast("Any", p), margin=margin, **_reduction(o))


def _poisson(o: Options) -> Loss:
    log_input, full, eps = o.flag("log_input", True), o.flag("full", False), o.number("eps", 1e-8)
    return PoissonNLL(log_input, full, eps, **_reduction(o))


def _gaussian(o: Options) -> Loss:
    full, eps = o.flag("full", False), o.number("eps", 1e-6)
    return GaussianNLL(full, eps, **_reduction(o))


def _cosine_embedding(o: Options) -> Loss:
    return CosineEmbedding(o.number("margin", 0.0), **_reduction(o))


def _margin_ranking(o: Options) -> Loss:
    return MarginRanking(o.number("margin", 0.0), **_reduction(o))


def _triplet(o: Options) -> Loss:
    margin, p, eps = o.number("margin", 1.0), o.number("p", 2.0), o.number("eps", 1e-6)
    return Triplet(margin, p, eps, o.flag("swap", False), **_reduction(o))


def _elementwise(cls: type[Loss]) -> Callable[[Options], Loss]:
    def convert(o: Options) -> Loss:
        o.only(
            "weight",
            None,
            because="weighs elements of the batch; samples are weighed by a batch input, sample_weight='...'",
        )
        return cls(**_reduction(o))

    return convert


# By class of torch.nn and function of torch.nn.functional.
_TORCH: dict[str, Callable[[Options], Loss]] = {
    "BCEWithLogitsLoss": _bce_with_logits,
    "CTCLoss": _ctc,
    "CosineEmbeddingLoss": _cosine_embedding,
    "CrossEntropyLoss": _cross_entropy,
    "GaussianNLLLoss": _gaussian,
    "HuberLoss": _huber,
    "KLDivLoss": _kl_divergence,
    "L1Loss": _elementwise(L1),
    "MarginRankingLoss": _margin_ranking,
    "MSELoss": _elementwise(MSE),
    "MultiMarginLoss": _multi_margin,
    "NLLLoss": _nll,
    "PoissonNLLLoss": _poisson,
    "SmoothL1Loss": _smooth_l1,
    "TripletMarginLoss": _triplet,
    "binary_cross_entropy_with_logits": _bce_with_logits,
    "cosine_embedding_loss": _cosine_embedding,
    "cross_entropy": _cross_entropy,
    "ctc_loss": _ctc,
    "gaussian_nll_loss": _gaussian,
    "huber_loss": _huber,
    "kl_div": _kl_divergence,
    "l1_loss": _elementwise(L1),
    "margin_ranking_loss": _margin_ranking,
    "mse_loss": _elementwise(MSE),
    "multi_margin_loss": _multi_margin,
    "nll_loss": _nll,
    "poisson_nll_loss": _poisson,
    "smooth_l1_loss": _smooth_l1,
    "triplet_margin_loss": _triplet,
}


def _converted(owner: str, name: str, settings: Mapping[str, Any]) -> Loss:
    if name not in _TORCH:
        try:
            LOSS.find(name)  # which knows some of them, and what to use in their place
        except ConfigurationError as error:
            raise ConfigurationError(f"{owner}: {error}") from error
    o = Options(owner, settings)
    loss = _TORCH[name](o)
    o.finish()
    return loss
