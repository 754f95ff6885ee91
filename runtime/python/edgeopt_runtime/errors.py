"""placeholder tree, replaced in the first hour."""


class EdgeoptError(Exception):
    """Root."""

    code = "E000"
