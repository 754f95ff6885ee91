"""Another optimizer for a bundle, without the model it was exported from.

Only the update of `step` and `apply`, the views of `evaluate` and `predict`, and what is accumulated depend on the
optimizer. Updates and views are calls of functions in the domain `edgeopt`, so they can be cut out of the finished
graphs: what they get as gradients, after all transforms, the new update gets.

`cut` finds the optimizer in a graph, `rebuild` puts another one there, `leave_out` lets transforms do without what is
frozen, `carry` decides which state goes on, and `seen` computes what stood for the parameters in evaluation.
"""

from edgeopt.training.surgery.replacement import Carryover, replace_optimizer

__all__ = ["Carryover", "replace_optimizer"]
