"""Why torch could not export a module, said to the person who wrote it: the cause, the line, and what helps there."""

from __future__ import annotations

import linecache
import re
import sysconfig
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from edgeopt.errors import EdgeoptError

__all__ = ["Place", "causes", "explain", "failed_call", "line_of", "place_in", "root"]

_TORCH = Path(torch.__file__).parent
_OURS = Path(__file__).parent.parent
_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = "site-packages"
_TOOLS = ("onnxscript", "onnx_ir", "sympy")
_SHOWN = 100

# How torch writes a line of the traced code into a message.
_FILE = re.compile(r'File "?(?P<file>[^"\n]+?)"?(?:, line |:)(?P<line>\d+)(?:, | )in (?P<function>\S+)')
_OPERATOR = re.compile(r"(?:op='|target: |\b)(?P<name>(?:aten|prims|torchvision|quantized|edgeopt)[.:]{1,2}\w+)")


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        code = textwrap.shorten(linecache.getline(self.file, self.line), _SHOWN, placeholder=" …")
        return f"{self.file}:{self.line}" + (f" (`{code}`)" if code else "")


@dataclass(frozen=True)
class _Cause:
    """What went wrong, recognised by torch's words, and what helps there."""

    pattern: re.Pattern[str]
    advice: str


_CAUSES = tuple(
    _Cause(re.compile(pattern), advice)
    for pattern, advice in (
        (
            r"data-dependent|DataDependent",
            "This is data-dependent: which way the code goes, or how large a tensor is, depends on the values of "
            "tensors, which a graph does not know beforehand. Choose between results with `torch.where`, between "
            "branches with `torch.cond`, and keep sizes fixed with a mask instead of selected rows.",
        ),
        (
            r"No ONNX function found|UnsupportedOperatorException|No decompositions registered",
            "The operator has no translation to ONNX. Write that line with other operations, or leave the part out of "
            "what is trained on the device.",
        ),
        (
            r"fake tensor in the exported program constant|lifted_tensor",
            "A tensor was taken out of torch's sight, by `.data`, or by an attribute that forward assigned. Use "
            "`detach()` instead of `.data`, and pass tensors on as arguments or keep them in buffers.",
        ),
        (
            r"Constraints violated|specialized|Not all values of|Dim\.DYNAMIC|dynamic shape",
            "The code works for some sizes only. Leave the dimension out of `dynamic_shapes`, or take the size from "
            "the tensor (`x.shape[1]`) wherever a number stands.",
        ),
        (
            r"autocast",
            "Switch autocast off in forward for the export, or write the conversion (`x.half()`) out.",
        ),
        (
            r"\.numpy\(\)|numpy",
            "forward leaves torch for numpy, where nothing is traced. Write that part with operations of torch.",
        ),
        (r"[Cc]omplex", "ONNX Runtime does not compute with complex numbers; keep real and imaginary part apart."),
        (r"[Ss]parse", "ONNX Runtime does not compute with sparse tensors; use dense ones (`to_dense()`)."),
        (r"[Qq]uantized", "Export the module as it was before quantization."),
    )
)


def explain(module: torch.nn.Module, error: BaseException) -> str:
    """One message: which module, where, torch's own words, and advice that fits them."""
    # What this package refuses itself, from inside torch, says all there is to say.
    refusal = next((cause for cause in causes(error) if isinstance(cause, EdgeoptError)), None)
    if refusal is not None:
        where = line_of(refusal)
        return f"{type(module).__name__}: {refusal}" + (f" It happens in {where}." if where else "")
    cause = root(error)
    text = _words(cause)
    operator = _OPERATOR.search(text)
    where = line_of(error)
    message = f"torch could not export {type(module).__name__}"
    message += f", because of {where}" if where else ""
    message += f": {type(cause).__name__}: {_first_part(text)}"
    whole = f"{type(cause).__name__} {text}"
    advice = next((known.advice for known in _CAUSES if known.pattern.search(whole)), None)
    if advice is not None and operator is not None and "operator has no translation" in advice:
        advice = advice.replace("The operator", f"`{operator['name']}`", 1)
    return message if advice is None else f"{message}\n{advice}"


def _translated(error: BaseException) -> Place | None:
    """The line of the operator that torch was at when it translated the program."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("node")
        if isinstance(node, torch.fx.Node) and (place := place_in(node.stack_trace or "")) is not None:
            return place
    return None


def failed_call(module: torch.nn.Module, error: BaseException, mode: str) -> str:
    """A message for a module that fails in PyTorch itself when it is called with the examples."""
    where = line_of(error)
    message = f"Calling {type(module).__name__} with the example inputs fails in PyTorch in {mode} mode"
    message += f", in {where}" if where else ""
    return f"{message}: {type(error).__name__}: {_first_part(_words(error))}"


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and what led to it, the first cause last."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def root(error: BaseException) -> BaseException:
    """The first of a chain of exceptions."""
    return list(causes(error))[-1]


def line_of(error: BaseException) -> Place | None:
    """The innermost line outside torch that the error came from, by its stack or by what torch wrote down of one."""
    for cause in reversed(list(causes(error))):
        frames = [f for f in traceback.extract_tb(cause.__traceback__) if _is_users(f.filename)]
        if frames:
            return Place(frames[-1].filename, frames[-1].lineno or 0)
    for cause in causes(error):
        if (place := _translated(cause)) is not None:
            return place
    written = (place_in(str(cause)) for cause in reversed(list(causes(error))))
    return next((place for place in written if place is not None), None)


def place_in(text: str) -> Place | None:
    """The innermost line outside torch of a stack that torch wrote down."""
    found = [match for match in _FILE.finditer(text) if _is_users(match["file"])]
    return Place(found[-1]["file"], int(found[-1]["line"])) if found else None


def _words(error: BaseException) -> str:
    # The text of a KeyError is only the key.
    return repr(error.args[0]) if isinstance(error, KeyError) and error.args else str(error).strip()


def _first_part(text: str) -> str:
    return text.split("\n\n")[0].strip()


def _is_users(file: str) -> bool:
    path = Path(file)
    standard = path.is_relative_to(_STANDARD) and _INSTALLED not in path.parts
    tool = any(name in path.parts for name in _TOOLS)
    return not (file.startswith("<") or standard or tool or path.is_relative_to(_TORCH) or path.is_relative_to(_OURS))
