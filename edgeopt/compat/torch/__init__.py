"""Update rules as optimizers of PyTorch; weights, and the state of PyTorch's own optimizers, in and out of bundles.

This package imports torch, and is the only part of the SDK that does; nothing imports it unless it is asked for.
"""

from edgeopt.compat.torch.optimizer import RuleOptimizer
from edgeopt.compat.torch.state import load_torch_state, torch_state
from edgeopt.compat.torch.weights import load_into

__all__ = ["RuleOptimizer", "load_into", "load_torch_state", "torch_state"]
