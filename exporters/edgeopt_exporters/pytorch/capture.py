"""What torch captures of a module, with every dimension symbolic that can be."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.fx.traceback import preserve_node_meta

from edgeopt.errors import EdgeoptError, UnsupportedModelError
from edgeopt_exporters.pytorch.calls import inference_as_no_grad, own_gradients_refused
from edgeopt_exporters.pytorch.checkpoints import checkpoints_called
from edgeopt_exporters.pytorch.explaining import causes, explain, line_of, root
from edgeopt_exporters.pytorch.inputs import Examples
from edgeopt_exporters.pytorch.interpreting import agree
from edgeopt_exporters.pytorch.module import Exported
from edgeopt_exporters.pytorch.quiet import quiet
from edgeopt_exporters.pytorch.sizes import resized
from edgeopt_exporters.pytorch.translations import FUNCTIONS
from edgeopt_exporters.pytorch.translations.batch_norm import cumulative_averages
from edgeopt_exporters.pytorch.translations.recurrent import WholeRecurrences
from edgeopt_exporters.pytorch.translations.rewriting import Replaced
from edgeopt_exporters.pytorch.translations.stopped import own_backwards_refused
from edgeopt_runtime.manifest import Decision

__all__ = ["Program", "are_one", "capture", "input_shapes", "is_used"]

Program = torch.export.ExportedProgram
_DYNAMIC, _AUTO = torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO

# Sizes at which a condition on a dimension is tried; torch takes 0 and 1 for constants.
_TRIED = range(2, 65)
_MOST = 3

# How torch says that a dimension is none.
_TIED = re.compile(
    r"\['inputs'\]\[(?P<input>\d+)\]\.size\(\)\[(?P<axis>\d+)\] as dynamic .* constant \((?P<size>\d+)\)"
)


def capture(module: Exported, examples: Examples) -> tuple[Program, Examples]:
    """The program of one mode, and the examples with the dimensions that are symbolic in it.

    Axis 0 stays fixed where the module allows nothing else, unless it was asked for.

    Raises:
        UnsupportedModelError: torch cannot capture the module, or not with a dimension that was asked for.
    """
    try:
        program = _captured(module, examples, examples.tensors, _DYNAMIC)
    except Exception as error:  # torch raises whatever the traced code raises, wrapped or not
        if not _has_defaults(examples) or any(isinstance(cause, EdgeoptError) for cause in causes(error)):
            raise _refusal(module, examples, error) from error
        return _with_fewer(module, examples, error)
    return _proven(module, examples, program)


def _with_fewer(module: Exported, examples: Examples, error: BaseException) -> tuple[Program, Examples]:
    """The same with axis 0 fixed where it has to be."""
    if _TIED.search(str(root(error))):
        try:
            program = _captured(module, examples, examples.tensors, _AUTO)
        except Exception:  # as above; the next try says what remains
            program = None
        if program is not None:
            left, fixed = _left_symbolic(examples, program)
            if _first_default(examples) not in fixed:
                tied = tuple(_fixed(examples, name, axis, "the module ties it to that size") for name, axis in fixed)
                return _proven(module, replace(left, decisions=(*examples.decisions, *tied)), program)
    static = _without_defaults(examples)
    try:
        program = _captured(module, static, static.tensors, _DYNAMIC)
    except Exception as last:  # as above
        raise _refusal(module, static, last) from last
    return _proven(module, _with_decision(static, _fixed_batch(examples, _reason(examples, error))), program)


def _captured(module: Exported, examples: Examples, tensors: tuple[torch.Tensor, ...], default: Any) -> Program:
    dynamic = tuple(
        {axis: _DYNAMIC if (name, axis) in examples.asked else default for axis in own}
        for name, own in zip(examples.names, examples.dimensions, strict=True)
    )
    # Captured here, since torch.onnx would try several ways, one of which bakes in branches on values.
    with quiet(), _as_captured():
        return torch.export.export(module, tensors, dynamic_shapes=(dynamic,), strict=False)


@contextlib.contextmanager
def _as_captured() -> Iterator[None]:
    """What torch.export would not see is said in a way that it does; annotations of nodes are kept."""
    contexts: tuple[contextlib.AbstractContextManager[Any], ...] = (
        # Whatever the caller has switched off, training needs gradients.
        torch.inference_mode(False),
        torch.enable_grad(),
        preserve_node_meta(),
        inference_as_no_grad(),
        own_gradients_refused(),
        checkpoints_called(),
        WholeRecurrences(),
        Replaced(FUNCTIONS),
        cumulative_averages(),
        own_backwards_refused(),
    )
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def input_shapes(program: Program) -> tuple[tuple[Any, ...], ...]:
    """The shape of each input in the program: numbers, and expressions of symbols."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    return tuple(tuple(_size_of(size) for size in values[name].shape) for name in program.graph_signature.user_inputs)


def _size_of(size: Any) -> Any:
    if isinstance(size, int):
        return size
    return int(size.node.expr) if size.node.expr.is_number else size.node.expr


def is_used(program: Program, place: int) -> bool:
    """Whether the program reads an input."""
    name = program.graph_signature.user_inputs[place]
    return any(node.name == name and bool(node.users) for node in program.graph.nodes)


def _left_symbolic(examples: Examples, program: Program) -> tuple[Examples, tuple[tuple[str, int], ...]]:
    """The examples without the dimensions that came out as numbers, and which those are."""
    fixed: list[tuple[str, int]] = []
    dimensions = []
    for name, own, shape in zip(examples.names, examples.dimensions, input_shapes(program), strict=True):
        fixed.extend((name, axis) for axis in own if isinstance(shape[axis], int))
        dimensions.append({axis: symbol for axis, symbol in own.items() if not isinstance(shape[axis], int)})
    return replace(examples, dimensions=tuple(dimensions)), tuple(fixed)


def _proven(module: Exported, examples: Examples, program: Program) -> tuple[Program, Examples]:
    """Keep a dimension symbolic only if the program is the same at the sizes that torch has doubts about.

    torch writes down conditions on sizes under which the program is the module (`s0 > 3`, where forward asks for that),
    and forgets them on the way to ONNX.
    """
    for symbol, size, condition in itertools.islice(_doubtful(examples, program), _MOST):
        try:
            tensors = resized(examples, {symbol: size})
            other = _captured(module, examples, tensors, _DYNAMIC)
        except Exception:  # where the module itself refuses a size, its graph need not do better
            continue
        if _text(other) == _text(program) or agree(program, other, tensors):
            continue
        reason = f"at size {size} the module computes something else than at {_size(examples, symbol)} ({condition})"
        if any((name, axis) in examples.asked for name, axis, own in _axes(examples) if own == symbol):
            raise UnsupportedModelError(
                f"{type(module.module).__name__}: the dimension {symbol!r} cannot be symbolic: {reason}. Leave it out "
                "of dynamic_shapes, or write forward without decisions on this size."
            )
        static = _without_defaults(examples)
        fixed = _with_decision(static, _fixed_batch(examples, reason))
        return _captured(module, static, static.tensors, _DYNAMIC), fixed
    return program, examples


def _doubtful(examples: Examples, program: Program) -> Iterator[tuple[str, int, str]]:
    """Dimensions with a size that breaks a condition of the program, each once."""
    names: dict[Any, str] = {}
    for own, shape in zip(examples.dimensions, input_shapes(program), strict=True):
        names.update({shape[axis]: symbol for axis, symbol in own.items()})
    seen: set[tuple[str, int]] = set()
    for guard in _conditions(program):
        free = sorted(guard.free_symbols, key=str)
        if len(free) != 1 or free[0] not in names:
            continue
        broken = (size for size in _TRIED if str(guard.subs(free[0], size)) == "False")
        size = next(broken, None)
        if size is not None and (names[free[0]], size) not in seen:
            seen.add((names[free[0]], size))
            yield names[free[0]], size, str(guard).replace(str(free[0]), names[free[0]])


def _conditions(program: Program) -> Iterator[Any]:
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            yield from (guard.expr for guard in mode.shape_env.guards)
            return


def are_one(one: Program, other: Program) -> bool:
    """Whether two programs of a module are the same node for node, and read and write the same, constants included."""
    alike = _text(one) == _text(other) and one.graph_signature == other.graph_signature
    if not alike or one.constants.keys() != other.constants.keys():
        return False
    pairs = [(one.constants[name], other.constants[name]) for name in one.constants]
    return all(
        isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor) and _equal(mine, theirs)
        for mine, theirs in pairs
    )


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the last bit, NaN being itself."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    same = one == other
    return bool((same | ((one != one) & (other != other))).all())  # only NaN differs from itself


def _text(program: Program) -> str:
    """The program without what torch noted about sizes."""
    return "\n".join(
        str(part.graph) for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)
    )


def _axes(examples: Examples) -> Iterator[tuple[str, int, str]]:
    for name, own in zip(examples.names, examples.dimensions, strict=True):
        for axis, symbol in own.items():
            yield name, axis, symbol


def _size(examples: Examples, symbol: str) -> int:
    return next(
        tensor.shape[axis]
        for tensor, own in zip(examples.tensors, examples.dimensions, strict=True)
        for axis, name in own.items()
        if name == symbol
    )


def _has_defaults(examples: Examples) -> bool:
    return any((name, axis) not in examples.asked for name, axis, _ in _axes(examples))


def _first_default(examples: Examples) -> tuple[str, int]:
    return next((name, axis) for name, axis, _ in _axes(examples) if (name, axis) not in examples.asked)


def _without_defaults(examples: Examples) -> Examples:
    dimensions = tuple(
        {axis: symbol for axis, symbol in own.items() if (name, axis) in examples.asked}
        for name, own in zip(examples.names, examples.dimensions, strict=True)
    )
    return replace(examples, dimensions=dimensions)


def _with_decision(examples: Examples, decision: Decision) -> Examples:
    return replace(examples, decisions=(*examples.decisions, decision))


def _fixed(examples: Examples, name: str, axis: int, reason: str) -> Decision:
    size = examples.tensors[examples.names.index(name)].shape[axis]
    return Decision("fixed", name, f"Axis {axis} of `{name}` stays {size}: {reason}.")


def _fixed_batch(examples: Examples, reason: str) -> Decision:
    name, axis = _first_default(examples)
    symbol = examples.dimensions[examples.names.index(name)][axis]
    return Decision("fixed", symbol, f"The dimension `{symbol}` stays {_size(examples, symbol)}: {reason}.")


def _reason(examples: Examples, error: BaseException) -> str:
    """Why a dimension cannot be symbolic, in one line."""
    where = line_of(error)
    if _TIED.search(str(root(error))):
        reason = "the module ties it to that size"
    else:
        first = str(root(error)).strip().split("\n")[0].rstrip(".")
        reason = f"torch cannot capture the module otherwise ({type(root(error)).__name__}: {first})"
    return reason + (f", in {where}" if where else "")


def _refusal(module: Exported, examples: Examples, error: BaseException) -> UnsupportedModelError:
    tied = _TIED.search(str(root(error)))
    if tied is None:
        return UnsupportedModelError(explain(module.module, error))
    name, axis = examples.names[int(tied["input"])], int(tied["axis"])
    symbol = examples.dimensions[int(tied["input"])].get(axis)
    where = line_of(error)
    return UnsupportedModelError(
        f"{type(module.module).__name__}: the dimension {symbol!r} (axis {axis} of {name!r}) cannot be symbolic, since "
        f"the module ties it to {tied['size']}, its size in the example" + (f", in {where}" if where else "") + ". "
        f"Leave it out of dynamic_shapes, or take the size from the tensor in forward ({name}.shape[{axis}])."
    )
