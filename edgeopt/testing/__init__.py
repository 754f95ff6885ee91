"""Checks for code that builds on edgeopt: are the gradients of this model right?"""

from edgeopt.testing.gradients import check_gradients

__all__ = ["check_gradients"]
