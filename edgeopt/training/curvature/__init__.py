"""Curvature for update rules: further passes through the model within the graph that computes the gradient.

Each estimate is made from sums that add up over microbatches, so that `step` and `accumulate` share the passes and
`apply` needs no batch. Passes that are not due at every update stand in the branch of an `If`.
"""

from edgeopt.training.curvature.estimates import accumulated_curvature, curvature_estimates, curvature_sums
from edgeopt.training.curvature.finding import Layers
from edgeopt.training.curvature.passes import Passes

__all__ = ["Layers", "Passes", "accumulated_curvature", "curvature_estimates", "curvature_sums"]
