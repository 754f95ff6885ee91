"""Where weights come from and go to: sessions, bundles, files of safetensors, modules of PyTorch, arrays by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from edgeopt_runtime import shown
from edgeopt_runtime.atomic import replace_file
from edgeopt_runtime.errors import ForeignBundleError, StateError
from edgeopt_runtime.manifest import Manifest
from edgeopt_runtime.tensors import encode_state
from edgeopt_runtime.transfer import Tensor, WeightReport, is_safetensors, matched, read_safetensors, tensors_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeopt_runtime.session import TrainingSession

__all__ = ["Which", "changing", "fitting", "weights_of", "write_weights"]

Which: TypeAlias = Literal["all", "trainable"]


def weights_of(source: Any, view: Literal["trained", "evaluated"] = "evaluated") -> dict[str, Tensor]:
    """Parameters and buffers by every name that they have.

    Args:
        source: A session; a bundle, its path or its bytes; the path of a safetensors file; a module of PyTorch; or
            arrays or tensors by name.
        view: Of a session or bundle, see `TrainingSession.parameters`.

    Raises:
        StateError: It is nothing of all that, or cannot be read.
        BundleError: The bundle cannot be used.
    """
    from edgeopt_runtime.session import TrainingSession

    if isinstance(source, Mapping):
        return tensors_of(source)
    if isinstance(source, TrainingSession):
        return _of_session(source, view)
    if isinstance(source, (str, os.PathLike)) and is_safetensors(Path(source)):
        return read_safetensors(source)
    if isinstance(source, (str, os.PathLike, bytes)) or hasattr(source, "manifest"):
        # A bundle may keep weights otherwise than they are used, which sessions know about.
        try:
            return _of_session(TrainingSession(source), view)
        except ForeignBundleError as error:
            what = "These bytes are" if isinstance(source, bytes) else f"{shown.where(source)} is"
            raise StateError(
                f"{what} neither a bundle nor a safetensors file ({error}); of a file of PyTorch's, give what "
                "`torch.load` returns."
            ) from error
    if hasattr(source, "state_dict"):
        return tensors_of(source.state_dict())
    raise StateError(
        "Weights come from arrays by name, a safetensors file, a bundle, a session or a module of PyTorch; got "
        f"{type(source).__name__}."
    )


def _of_session(session: TrainingSession, view: Literal["trained", "evaluated"]) -> dict[str, Tensor]:
    manifest = session.manifest
    dtypes = {spec.name: spec.dtype for spec in manifest.tensors}
    arrays = {**session.parameters(view), **session.buffers()}
    return {
        name: Tensor(dtypes[manifest.aliases.get(name, name)], array.shape, array) for name, array in arrays.items()
    }


def changing(manifest: Manifest) -> frozenset[str]:
    """The weights that training changes: trainable parameters, and the buffers that a step replaces."""
    steps = [manifest.signatures[name] for name in ("step", "accumulate") if name in manifest.signatures]
    written = {port.tensor for signature in steps for port in signature.outputs}
    written |= {member for entry in manifest.joined if entry.name in written for member in entry.members}
    return frozenset(
        spec.name
        for spec in manifest.tensors
        if (spec.role == "parameter" and spec.trainable) or (spec.role == "buffer" and spec.name in written)
    )


def fitting(
    manifest: Manifest, own: Mapping[str, NDArray[Any]], given: Mapping[str, Tensor], which: Which, *, strict: bool
) -> tuple[dict[str, NDArray[Any]], WeightReport]:
    """The arrays of given weights by the names of a bundle's tensors; see `matched` for the rules and errors.

    Args:
        manifest: The bundle's.
        own: Its parameters and buffers by name, other names included.
        given: The weights.
        which: What must be there.
        strict: Refuse unless it is, and nothing else.
    """
    dtypes = {spec.name: spec.dtype for spec in manifest.tensors}
    wanted = {name: Tensor(dtypes[name], array.shape) for name, array in own.items() if name in dtypes}
    return matched(wanted, manifest.aliases, given, needed=_names(manifest, wanted, which), strict=strict)


def write_weights(
    path: str | os.PathLike[str], manifest: Manifest, own: Mapping[str, NDArray[Any]], which: Which
) -> None:
    """Write weights to a safetensors file, each under one name; its metadata say which other names it has.

    Raises:
        StateError: There is no such ``which``.
        StorageError: The file cannot be written; what was there is whole.
    """
    names = _names(manifest, own, which)
    specs = [replace(spec, shape=own[spec.name].shape) for spec in manifest.tensors if spec.name in names]
    aliases = {alias: name for alias, name in manifest.aliases.items() if name in names}
    replace_file(Path(os.fspath(path)), encode_state(specs, own, {"format": "pt", **aliases}))


def _names(manifest: Manifest, own: Mapping[str, Any], which: Which) -> frozenset[str]:
    if which not in ("all", "trainable"):
        raise StateError(f'`which` must be "all" or "trainable", not {which!r}.')
    names = frozenset(spec.name for spec in manifest.tensors if spec.name in own)
    return names if which == "all" else names & changing(manifest)
