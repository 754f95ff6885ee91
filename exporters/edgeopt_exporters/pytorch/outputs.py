"""What training returns and what evaluation returns: which of them are the same."""

from __future__ import annotations

from edgeopt.errors import SignatureError
from edgeopt_exporters.pytorch.module import Returned, alike
from edgeopt_exporters.pytorch.trial import Trial

__all__ = ["paired"]


def paired(trial: Trial, output: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the outputs in training and in evaluation; what has one name is the same output in both.

    Names of the module's own decide. Without them, outputs are the same by their position if both modes return as many
    of the same types and shapes. Where evaluation returns a single tensor, `output` says which of training's it is.

    Raises:
        SignatureError: It cannot be told.
    """
    train, evaluate = trial.train, trial.evaluate
    if output is not None and output not in train.names:
        raise SignatureError(f"The module has no output {output!r}; in training it returns {train.described()}.")
    if train.named and evaluate.named and set(train.names) & set(evaluate.names):
        shared = output or _first(train, evaluate)
        if shared in evaluate.names:
            _check_alike(train, evaluate, shared)
            return train.names, evaluate.names
    elif not train.named and not evaluate.named and len(train.names) == len(evaluate.names):
        names = [output] if output is not None else train.names
        if _is_straight(trial):
            for name in names:
                _check_alike(train, evaluate, name)
            return train.names, evaluate.names
    if output is not None and len(evaluate.names) == 1:
        _check_claim(trial, output)
        renamed = Returned((output,), evaluate.tensors, named=True)
        _check_alike(train, renamed, output)
        return train.names, (output,)
    raise _differ(train, evaluate)


def _first(train: Returned, evaluate: Returned) -> str:
    """The output that loss and metrics read if nobody says which."""
    if train.names[0] != evaluate.names[0]:
        raise _differ(train, evaluate)
    return train.names[0]


def _check_alike(train: Returned, evaluate: Returned, name: str) -> None:
    one, other = (side.tensors[side.names.index(name)] for side in (train, evaluate))
    if one.dtype != other.dtype or one.shape != other.shape:
        raise _differ(train, evaluate)


def _check_claim(trial: Trial, output: str) -> None:
    """Whether evaluation does not return another output of training than the one that was named."""
    (evaluated,) = trial.evaluate.tensors
    pairs = zip(trial.compared.names, trial.compared.tensors, strict=True)
    equal = [name for name, tensor in pairs if alike(tensor, evaluated)]
    if equal and output not in equal:
        raise SignatureError(
            f"output={output!r} was given, but what the module returns in evaluation is {equal[0]!r} of training. Pass "
            f"output={equal[0]!r}, or let evaluation return {output!r}."
        )


def _is_straight(trial: Trial) -> bool:
    """Whether no output of training has the values of another of evaluation, and not those at its own position."""
    for position, tensor in enumerate(trial.compared.tensors):
        equal = [alike(tensor, other) for other in trial.evaluate.tensors]
        if any(equal) and not equal[position]:
            return False
    return True


def _differ(train: Returned, evaluate: Returned) -> SignatureError:
    return SignatureError(
        f"The module returns {train.described()} in training and {evaluate.described()} in evaluation, so that it "
        "cannot be told which output of the one is which of the other. Pass output=, one of "
        f"{list(train.names)}, if evaluation returns that output alone; or let forward return the same in both modes, "
        "in a dict with the same names."
    )
