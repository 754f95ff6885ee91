"""What a caller gives, in the habits of other frameworks, as what everything behind `edgeopt.export` takes.

All of it happens before a model is traced: what has one meaning is taken over whole, and the rest is refused in a line
that names what to give instead.
"""

from edgeopt_exporters.given.calls import INSTEAD
from edgeopt_exporters.given.dimensions import named_dimensions
from edgeopt_exporters.given.losses import as_loss
from edgeopt_exporters.given.models import refuse_labels, refuse_model
from edgeopt_exporters.given.optimizers import Given, as_optimizer
from edgeopt_exporters.given.transforms import as_transforms

__all__ = [
    "INSTEAD",
    "Given",
    "as_loss",
    "as_optimizer",
    "as_transforms",
    "named_dimensions",
    "refuse_labels",
    "refuse_model",
]
