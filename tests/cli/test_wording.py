from __future__ import annotations

import re
from pathlib import Path

import pytest

import edgeopt_runtime
from edgeopt.cli.wording import in_options


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('or load the session with on_nonfinite="skip".', "or train with --on-nonfinite skip."),
        ("Freeze the parameters with `trainable=...`, or", "Freeze the parameters with --trainable, or"),
        ("in front of it, by output='logits' for a file", "in front of it, by --loss-input 'logits' for a file"),
        ("another output with `output=`, or", "another output with --loss-input, or"),
        ("batch_norm='train' makes them use", "--batch-norm train makes them use"),
        ("check=False exports what there is.", "--no-check exports what there is."),
        ("give dynamic_batch=False to fix it", "give --fixed-batch to fix it"),
        ("give Accuracy(class_axis=-1).", "give --metric accuracy:class_axis=-1."),
        ("fixed_inputs names 'sr'", "--fixed-input names 'sr'"),
        ("The output of forward is 3 = 3", "The output of forward is 3 = 3"),
    ],
)
def test_arguments_become_options(message: str, said: str) -> None:
    assert in_options(message) == said


def test_no_advice_of_the_runtime_about_what_is_not_finite_is_left_in_python() -> None:
    folder = Path(edgeopt_runtime.__file__).parent
    said = [
        line for file in folder.glob("*.py") for line in re.findall(r"'[^'\n]*on_nonfinite=[^'\n]*'", file.read_text())
    ]
    assert said
    assert not any("on_nonfinite" in in_options(line) for line in said)
