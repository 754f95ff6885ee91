"""LoRA+: a larger rate for one of the two factors of each adapter."""

from __future__ import annotations

from edgeopt.checks import at_least
from edgeopt.optimizers.base import Optimizer
from edgeopt.optimizers.groups import Group, ParameterGroups

__all__ = ["lora_plus"]


def lora_plus(optimizer: Optimizer, ratio: float = 16.0) -> ParameterGroups:
    """Groups that train low-rank adapters as LoRA+ does (Hayou, Ghosh and Yu, ICML 2024, arXiv:2402.12354).

    In W + B·A the factor B begins at zero and has to go further than A: its learning rate is `ratio` times that of
    everything else. A device can change the ratio, the number `optimizer.lora_B.lr_multiplier`. `LoRARITE` needs none:
    its steps do not depend on how the product is divided.

    Args:
        optimizer: The rule for both factors, with the rate of A, which LoRA+ wants smaller than for equal rates.
        ratio: The paper's λ; its advice is 16, and more where the task is hard.

    Returns:
        The groups. `B` is whatever has `lora_B` or `lora_b` in its name, as in PEFT.

    Raises:
        ConfigurationError: `ratio` is below 1.
    """
    at_least("ratio", ratio, 1.0)
    return ParameterGroups(optimizer, (Group("*lora_[Bb]*", name="lora_B", lr_multiplier=ratio),))
