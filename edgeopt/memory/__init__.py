"""What a training step needs of memory, foretold from its graph."""

from edgeopt.memory.estimate import Estimate, LayerMemory, estimate

__all__ = ["Estimate", "LayerMemory", "estimate"]
