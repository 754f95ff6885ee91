"""Minimising the loss over given batches: methods that decide from loss and gradient how far to go.

They run on the host, in numpy, and drive the bundle's graphs: `accumulate` for loss and gradient, `hessian_vector` for
products of the Hessian with a vector. A method is a class of settings in `METHODS`, whose `rule` proposes directions;
`descend` does the rest. Those in `STOCHASTIC` take a step for each batch that they draw; those in `WITHOUT_GRADIENTS`
go their own way, with the loss of `evaluate` alone.
"""

from edgeopt_runtime.minimize.descent import MinimizeResult
from edgeopt_runtime.minimize.method import Method
from edgeopt_runtime.minimize.methods import METHODS, STOCHASTIC, WITHOUT_GRADIENTS, minimize

__all__ = ["METHODS", "STOCHASTIC", "WITHOUT_GRADIENTS", "Method", "MinimizeResult", "minimize"]
