"""The module run on its examples before it is captured: what it returns, and whether it keeps something by itself."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from edgeopt.errors import EdgeoptError, SignatureError, UnsupportedModelError
from edgeopt_exporters.pytorch.calls import TensorCalls, own_gradients_refused
from edgeopt_exporters.pytorch.explaining import failed_call
from edgeopt_exporters.pytorch.module import Returned, in_mode
from edgeopt_exporters.pytorch.preserved import Snapshot, global_state, preserved
from edgeopt_exporters.pytorch.translations.stopped import own_backwards_refused
from edgeopt_runtime.manifest import Decision

__all__ = ["Trial", "try_out"]

_PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Trial:
    """What a module does with its examples.

    Attributes:
        train: What it returns in training mode.
        evaluate: What it returns in evaluation mode.
        compared: What it returns in training mode if torch's own layers are in evaluation mode, so that it may be
            compared with `evaluate`.
        decisions: What it changes beside its state.
    """

    train: Returned
    evaluate: Returned
    compared: Returned
    decisions: tuple[Decision, ...]


def try_out(module: torch.nn.Module, call: Callable[[], Any]) -> Trial:
    """Call a module in both modes, and leave it as it was.

    Args:
        module: The module.
        call: Calls it on copies of its examples, in the mode that it is in.

    Raises:
        SignatureError: It returns no tensor.
        UnsupportedModelError: It fails; or it does what no graph can say: puts other parameters in the place of its
            own, uses hooks on gradients, or keeps something between calls that is no buffer.
    """
    with preserved(module) as snapshot:
        restart = global_state()
        evaluate = _called(module, call, training=False)
        changed = dict(snapshot.changed())
        _refuse_new_parameters(module, snapshot)
        snapshot.restore()
        restart()
        train = _called(module, call, training=True)
        changed |= snapshot.changed()
        _refuse_new_parameters(module, snapshot)
        if changed:
            _refuse_memory(module, call, snapshot, changed, {True: train, False: evaluate}, restart)
        snapshot.restore()
        restart()
        compared = train if len(train.tensors) == 1 else _called(module, call, training=True, plain_layers=True)
    return Trial(train, evaluate, compared, tuple(_counters(changed)))


def _called(
    module: torch.nn.Module, call: Callable[[], Any], *, training: bool, plain_layers: bool = False
) -> Returned:
    mode = "training" if training else "evaluation"
    with in_mode(module, training=training), contextlib.ExitStack() as stack:
        if plain_layers:
            for part in module.modules():
                if type(part).__module__.startswith("torch.nn."):
                    part.training = False
        stack.enter_context(torch.set_grad_enabled(training))
        for context in (own_gradients_refused(), own_backwards_refused(), TensorCalls(module, capturing=False)):
            stack.enter_context(context)
        # The module says them when it is used, and some only because gradients are off here.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            returned = Returned.of(call())
        except EdgeoptError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise SignatureError(failed_call(module, error, mode)) from error
    if not returned.tensors:
        raise SignatureError(f"The module returns no tensor in {mode} mode.")
    return returned.detached()


def _refuse_new_parameters(module: torch.nn.Module, snapshot: Snapshot) -> None:
    before, after = snapshot.parameters, dict(module.named_parameters(remove_duplicate=False))
    others = [name for name in dict.fromkeys([*before, *after]) if before.get(name) is not after.get(name)]
    if others:
        raise UnsupportedModelError(
            f"forward of {type(module).__name__} puts another parameter in the place of {', '.join(others)}. What is "
            "trained has to stay one tensor: write into it, under torch.no_grad() with copy_()."
        )


def _refuse_memory(
    module: torch.nn.Module,
    call: Callable[[], Any],
    snapshot: Snapshot,
    changed: Mapping[str, tuple[Any, Any]],
    first: Mapping[bool, Returned],
    restart: Callable[[], None],
) -> None:
    """Refuse what makes a later call return something else, though parameters, buffers and random numbers are alike."""
    for training in (True, True, False, False):
        snapshot.restore(attributes=False)
        restart()
        again = _called(module, call, training=training)
        if not again.is_like(first[training]):
            raise UnsupportedModelError(
                f"{type(module).__name__} keeps something from call to call in {', '.join(map(repr, changed))}, and "
                "returns other values for it. A graph has no attributes of Python: register a tensor as a buffer "
                "(self.register_buffer), count in one, and write new values into it in forward."
            )


def _counters(changed: Mapping[str, tuple[Any, Any]]) -> Iterator[Decision]:
    for path, (before, after) in changed.items():
        if isinstance(before, _PLAIN) and isinstance(after, _PLAIN):
            yield Decision(
                "frozen",
                path,
                f"forward changes the attribute {path!r}, which is no buffer: the graphs were made with {before!r} and "
                "do not count on. If anything depends on it, register a buffer.",
                warning=True,
            )
