"""What only the command line can find wrong."""

from __future__ import annotations

from edgeopt.errors import EdgeoptError

__all__ = ["CommandError"]


class CommandError(EdgeoptError):
    """A command was given a file, a name or a combination of options that it cannot use."""

    code = "E300"
