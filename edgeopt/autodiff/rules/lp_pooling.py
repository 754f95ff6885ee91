"""Pooling by the p-norm of each window."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.autodiff.rules.pooling import Pooling
from edgeopt.autodiff.windows import images_of
from edgeopt.tracing import Array
from edgeopt.tracing.site import Site


@rule("LpPool")
def lp_pool(n: Site, g: Array) -> Array:
    """sign(x) |x|^(p-1), times the share y^(1-p) of each window."""
    pooling = Pooling(n)
    ones = np.ones((1, 1, *pooling.window.kernel), g.dtype)
    shares = pooling.scatter(images_of(_share(n, g)), ones, pooling.pad(images_of(n.x)))
    return shares * _slope(n)


@rule("GlobalLpPool")
def global_lp_pool(n: Site, g: Array) -> Array:
    """The same, with one window for each channel."""
    return _share(n, g) * _slope(n)


def _share(n: Site, g: Array) -> Array:
    """g y^(1-p), and 0 where the norm is 0."""
    if n.attr("p", 2) == 1:
        return g
    zero = indicator(n.y == xp.zeros_like(n.y), g)
    return g * (1.0 - zero) * (n.y + zero) ** float(1 - n.attr("p", 2))


def _slope(n: Site) -> Array:
    power = n.attr("p", 2)
    if power == 2:
        return n.x
    return xp.sign(n.x) if power == 1 else xp.sign(n.x) * xp.abs(n.x) ** float(power - 1)
