"""Messages in the words of the command line: they are written for Python, where an option is an argument."""

from __future__ import annotations

import re

__all__ = ["in_options"]

# Pattern and replacement, the more special ones first.
_PHRASES = tuple(
    (re.compile(pattern), option)
    for pattern, option in (
        (r'load the session with on_nonfinite=["\'](\w+)["\']', r"train with --on-nonfinite \1"),
        (r'(this session went on )under on_nonfinite=["\'](\w+)["\']', r"\1under --on-nonfinite \2"),
        (r'`?on_nonfinite=["\'](\w+)["\']`?', r"--on-nonfinite \1"),
        (r"`?trainable=\.\.\.`?", "--trainable"),
        (r"`?trainable=('[^']*'|\"[^\"]*\")`?", r"--trainable \1"),
        (r"`trainable=`|\btrainable= and patterns", "--trainable"),
        (r"`?output=('[^']*'|\"[^\"]*\")`?", r"--loss-input \1"),
        (r"`output=`|\boutput=(?=,)", "--loss-input"),
        (r'batch_norm=["\'](\w+)["\']', r"--batch-norm \1"),
        (r"\bcheck=False\b", "--no-check"),
        (r"\bdynamic_batch=False\b", "--fixed-batch"),
        (r"`?fixed_inputs`?(?![\w=])", "--fixed-input"),
        (r"\bAccuracy\((class_axis=[^)]*)\)", r"--metric accuracy:\1"),
        (r"\bset_hyper\((\w+=[^)]*)\)", r"--hyper \1"),
        (r"smaller batches, or `accumulate`", "a smaller --batch-size"),
    )
)


def in_options(message: str) -> str:
    """A message that names options in place of the arguments that they stand for."""
    for pattern, option in _PHRASES:
        message = pattern.sub(option, message)
    return message
