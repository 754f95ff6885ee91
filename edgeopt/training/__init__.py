"""Composes forward, loss, backward and update into the graphs of a bundle."""

from edgeopt.training.compose import compose
from edgeopt.training.forward import ForwardGraph, ForwardModel

__all__ = ["ForwardGraph", "ForwardModel", "compose"]
