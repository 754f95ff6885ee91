"""Names of rules with a storage format of their state, as bitsandbytes and torchao have them.

The formats are those of these packages. Where only the memory counts, `AdamW(state="int8")` takes a step in less time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec

from edgeopt.checks import require
from edgeopt.optimizers.base import Optimizer
from edgeopt.optimizers.rules.adaptive.adagrad import Adagrad
from edgeopt.optimizers.rules.adaptive.adam import Adam, AdamW
from edgeopt.optimizers.rules.adaptive.ademamix import AdEMAMix
from edgeopt.optimizers.rules.adaptive.rmsprop import RMSprop
from edgeopt.optimizers.rules.layerwise.lamb import LAMB
from edgeopt.optimizers.rules.layerwise.lars import LARS
from edgeopt.optimizers.rules.sgd.sgd import SGD
from edgeopt.optimizers.rules.sgd.sign import Lion
from edgeopt.optimizers.wrappers.quantized_state import QuantizedState

__all__ = [
    "PAIRS",
    "AdEMAMix8bit",
    "Adagrad8bit",
    "Adam4bit",
    "Adam8bit",
    "AdamFp8",
    "AdamW4bit",
    "AdamW8bit",
    "AdamWFp8",
    "LAMB8bit",
    "LARS8bit",
    "Lion8bit",
    "Pair",
    "RMSprop8bit",
    "SGD8bit",
]

_Settings = ParamSpec("_Settings")


@dataclass(frozen=True)
class Pair(Generic[_Settings]):
    """A rule and a storage format of its state. Called with the rule's settings, it makes a `QuantizedState`.

    Raises:
        ConfigurationError: When called: a format is given as well, or the rule refuses a setting.
    """

    rule: Callable[_Settings, Optimizer]
    state: str

    def __call__(self, *args: _Settings.args, **kwargs: _Settings.kwargs) -> QuantizedState:
        """The rule with these settings, and the format around it."""
        require("state" not in kwargs, f"the name says how state is kept, {self.state}; leave out state=")
        return QuantizedState(self.rule(*args, **kwargs), self.state)


AdEMAMix8bit = Pair(AdEMAMix, "int8_dynamic")
Adagrad8bit = Pair(Adagrad, "int8_dynamic")
Adam4bit = Pair(Adam, "int4")
Adam8bit = Pair(Adam, "int8_dynamic")
AdamFp8 = Pair(Adam, "fp8_e4m3")
AdamW4bit = Pair(AdamW, "int4")
AdamW8bit = Pair(AdamW, "int8_dynamic")
AdamWFp8 = Pair(AdamW, "fp8_e4m3")
LAMB8bit = Pair(LAMB, "int8_dynamic")
LARS8bit = Pair(LARS, "int8_dynamic")
Lion8bit = Pair(Lion, "int8_dynamic")
RMSprop8bit = Pair(RMSprop, "int8_dynamic")
SGD8bit = Pair(SGD, "int8_dynamic")

#: The pairs by name, for words; the longer names are those of transformers' `TrainingArguments(optim=...)`.
PAIRS: dict[str, Callable[..., QuantizedState]] = {
    "adagrad8bit": Adagrad8bit,
    "adam4bit": Adam4bit,
    "adam8bit": Adam8bit,
    "adam_fp8": AdamFp8,
    "adamw4bit": AdamW4bit,
    "adamw8bit": AdamW8bit,
    "adamw_bnb_8bit": AdamW8bit,
    "adamw_fp8": AdamWFp8,
    "adamw_torch_4bit": AdamW4bit,
    "adamw_torch_8bit": AdamW8bit,
    "ademamix8bit": AdEMAMix8bit,
    "lamb8bit": LAMB8bit,
    "lars8bit": LARS8bit,
    "lion8bit": Lion8bit,
    "paged_adamw_8bit": AdamW8bit,
    "paged_ademamix_8bit": AdEMAMix8bit,
    "paged_lion_8bit": Lion8bit,
    "rmsprop8bit": RMSprop8bit,
    "rmsprop_bnb_8bit": RMSprop8bit,
    "sgd8bit": SGD8bit,
}
