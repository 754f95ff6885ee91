"""Storage formats: how an array of state is kept in fewer bits. Nothing here knows an optimizer."""

from edgeopt.quantization.base import Format
from edgeopt.quantization.bfloat16 import BFloat16
from edgeopt.quantization.codebook import Codebook
from edgeopt.quantization.companded import Companded
from edgeopt.quantization.factored import Factored
from edgeopt.quantization.registry import FORMATS, StateFormat, as_state_format, name_of

__all__ = [
    "FORMATS",
    "BFloat16",
    "Codebook",
    "Companded",
    "Factored",
    "Format",
    "StateFormat",
    "as_state_format",
    "name_of",
]
