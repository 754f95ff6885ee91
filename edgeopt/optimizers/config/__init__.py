"""From the configurations of other frameworks to update rules.

Each framework has a table of converters, one for each optimizer and each schedule that has the same formula here. What
has no equal is refused, never approximated, and so is an option that no converter reads.
"""

from edgeopt.optimizers.config.convert import from_config

__all__ = ["from_config"]
