"""Numbers, with or without how sure the model is of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.checks import require
from edgeopt.losses import MSE, GaussianNLL, Huber, Loss
from edgeopt.metrics import MAE, R2, RMSE
from edgeopt.tasks.base import Recipe, Task

__all__ = ["Regression"]


@dataclass(frozen=True)
class Regression(Task):
    """Numbers of the same shape as the target.

    With `robust` the loss is Huber's, which outliers move less. With `variance`, the name of a second output, the model
    says how sure it is: that output is the logarithm of the variance of each number, and the loss the negative
    log-likelihood of a normal distribution (Nix and Weigend, ICNN 1994), with a positive variance for whatever it is.

    Rate 1e-3 (Kingma and Ba, arXiv:1412.6980). Targets are best brought to a deviation of about 1 before.
    """

    name: ClassVar[str] = "regression"

    robust: bool = field(default=False, kw_only=True)
    variance: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not (self.robust and self.variance), "robust and variance are two losses; choose one")

    def recipe(self) -> Recipe:
        """See `Task`."""
        return self.made_of(self._loss(), MAE(), RMSE(), R2())

    def _loss(self) -> Loss:
        if self.variance is not None:
            return GaussianNLL(log_variance=True, variance=self.variance, output=self.output, target=self.target)
        kind: type[Loss] = Huber if self.robust else MSE
        return kind(output=self.output, target=self.target)
