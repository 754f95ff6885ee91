"""What update rules want measured in a batch, within the graph that computes the gradient: the loss, and curvature.

Curvature takes further passes through the model. Each measurement is made from sums that add up over microbatches, so
that `step` and `accumulate` share the passes and `apply` needs no batch. What is not due at every update stands in the
branch of an `If`.
"""

from edgeopt.training.measurements.estimates import accumulated_sums, measured, measured_sums
from edgeopt.training.measurements.finding import Layers
from edgeopt.training.measurements.passes import Passes

__all__ = ["Layers", "Passes", "accumulated_sums", "measured", "measured_sums"]
