"""Every storage format of optimizer state by name."""

from __future__ import annotations

from typing import NamedTuple

from edgeopt.errors import ConfigurationError
from edgeopt.quantization.base import Format
from edgeopt.quantization.bfloat16 import BFloat16
from edgeopt.quantization.codebook import Codebook
from edgeopt.quantization.companded import Companded
from edgeopt.quantization.factored import Factored
from edgeopt.quantization.maps import NF4, Table, dynamic, float8, linear_unsigned

__all__ = ["FORMATS", "StateFormat", "as_state_format", "name_of"]


class StateFormat(NamedTuple):
    """How the slots of an optimizer are kept.

    Attributes:
        signed: The format of what has both signs, such as a mean of gradients; None where such slots stay as they are.
        unsigned: The format of what has no negative values, such as a mean of squares.
        smallest: Parameters of fewer elements keep their slots as they are: they cost little, and matter much.
    """

    signed: Format | None
    unsigned: Format | None
    smallest: int = 4096


def _table(values: Table, block: int) -> Codebook:
    return Codebook(tuple(values.tolist()), block)


def _float8(kind: str) -> Codebook:
    values, codes = float8(kind)
    return Codebook(tuple(values.tolist()), 256, tuple(codes.tolist()))


_E4M3, _E5M2 = _float8("float8_e4m3fn"), _float8("float8_e5m2")

FORMATS: dict[str, StateFormat] = {
    "int8": StateFormat(Companded(signed=True, root=2), Companded(signed=False, root=4)),
    "int8_linear": StateFormat(Companded(signed=True, root=1), Companded(signed=False, root=1)),
    "int8_dynamic": StateFormat(_table(dynamic(signed=True), 256), _table(dynamic(signed=False), 256)),
    "int4": StateFormat(_table(dynamic(signed=True, exponents=3), 128), _table(linear_unsigned(4), 128)),
    "nf4": StateFormat(_table(NF4, 64), _table(linear_unsigned(4), 128)),
    "fp8_e4m3": StateFormat(_E4M3, _E4M3),
    "fp8_e5m2": StateFormat(_E5M2, _E5M2),
    "bf16": StateFormat(BFloat16(), BFloat16()),
    "bf16_stochastic": StateFormat(BFloat16(stochastic=True), BFloat16(stochastic=True)),
    "factored": StateFormat(None, Factored()),
}


def as_state_format(state: str | StateFormat) -> StateFormat:
    """The format of that name, or what is one already.

    Raises:
        ConfigurationError: There is none of that name.
    """
    if isinstance(state, StateFormat):
        return state
    if not isinstance(state, str) or state not in FORMATS:
        raise ConfigurationError(f"state must be one of {', '.join(FORMATS)}, got {state!r}")
    return FORMATS[state]


def name_of(state: StateFormat) -> str | None:
    """The name of a format, whatever the size of parameters from which on it is used; None if it is not registered."""
    return next((name for name, known in FORMATS.items() if known[:2] == state[:2]), None)
