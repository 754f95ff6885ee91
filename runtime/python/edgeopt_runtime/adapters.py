"""Adapters by themselves, in the layout of PEFT: ``adapter_model.safetensors`` and ``adapter_config.json`` in a folder.

The manifest says which parameters belong to an adapter, under which names they are kept, and what the configuration
says, so that this is all a runtime has to know. Nothing that is read is trusted: sizes, names, types and shapes are
those that the manifest expects, or nothing is changed.

Layout: https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt_runtime import shown
from edgeopt_runtime.atomic import replace_file, storage_errors
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import AdapterError, BundleError, StorageError
from edgeopt_runtime.folders import open_regular
from edgeopt_runtime.manifest import AdapterSpec, Manifest, TensorSpec
from edgeopt_runtime.tensors import HEADER_BYTES, encode_state, read_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONFIG_FILE", "WEIGHTS_FILE", "read_adapters", "read_config", "write_adapters"]

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
LARGEST_CONFIG = 1 << 24

# What decides what the numbers mean; a configuration that leaves one out means the other value.
DECISIVE: Mapping[str, Any] = {
    "peft_type": None,
    "r": 8,
    "lora_alpha": 8,
    "use_rslora": False,
    "use_dora": False,
}
# PEFT's prefix, and the end of a name that its versions write or leave out.
PREFIX, OPTIONAL_END = "base_model.model.", ".weight"


def write_adapters(path: str | os.PathLike[str], manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the adapters of a bundle into a folder, several into one folder each inside it.

    Args:
        path: The folder; it is made if it is not there. Each file is replaced as a whole.
        manifest: Knows the adapters.
        arrays: The parameters by name.

    Raises:
        AdapterError: The bundle has no adapters.
        StorageError: The files cannot be written.
    """
    specs = {spec.name: spec for spec in manifest.tensors}
    for folder, adapter in _folders(Path(os.fspath(path)), manifest):
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        stored = [_stored(entry.key, specs[entry.tensor]) for entry in adapter.tensors]
        state = {entry.key: arrays[entry.tensor] for entry in adapter.tensors}
        config = json.dumps(adapter.config, indent=2, sort_keys=True, default=list, ensure_ascii=False) + "\n"
        replace_file(folder / WEIGHTS_FILE, encode_state(stored, state))
        replace_file(folder / CONFIG_FILE, [config.encode()])


def read_adapters(path: str | os.PathLike[str], manifest: Manifest) -> dict[str, NDArray[Any]]:
    """The parameters of a bundle's adapters from a folder, or from a file of weights, by name.

    Half precision is widened to the type of the parameter.

    Raises:
        AdapterError: The files are none of an adapter, or of another one; the message says what differs.
    """
    place = Path(os.fspath(path))
    specs = {spec.name: spec for spec in manifest.tensors}
    arrays: dict[str, NDArray[Any]] = {}
    for folder, adapter in _folders(place, manifest):
        file = folder
        if not place.is_file():
            _check_config(read_config(folder), adapter, folder)
            file = folder / WEIGHTS_FILE
        arrays |= _read_weights(file, adapter, specs)
    return arrays


def read_config(folder: Path) -> dict[str, Any]:
    """What ``adapter_config.json`` says.

    Raises:
        AdapterError: There is none, or it is none.
    """
    content = _read(folder / CONFIG_FILE, LARGEST_CONFIG)
    try:
        config = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{shown.where(folder / CONFIG_FILE)} is not JSON: {error}.") from error
    if not isinstance(config, dict):
        raise AdapterError(f"{shown.where(folder / CONFIG_FILE)} is no configuration: it is not an object.")
    return config


def _folders(path: Path, manifest: Manifest) -> list[tuple[Path, AdapterSpec]]:
    if not manifest.adapters:
        raise AdapterError(
            "The bundle has no adapters: `edgeopt.export(..., adapters=...)` puts them there. `parameters()` and "
            "`load_parameters` give and take whole models."
        )
    if len(manifest.adapters) == 1:
        return [(path, manifest.adapters[0])]
    return [(path / adapter.name, adapter) for adapter in manifest.adapters]


def _stored(key: str, spec: TensorSpec) -> TensorSpec:
    return TensorSpec(key, "parameter", spec.dtype, spec.shape)


def _check_config(config: Mapping[str, Any], adapter: AdapterSpec, folder: Path) -> None:
    wrong = []
    for key, otherwise in DECISIVE.items():
        if key not in adapter.config:
            continue
        found, expected = config.get(key, otherwise), adapter.config[key]
        if type(found) not in (str, int, float, bool, type(None)) or found != expected:
            wrong.append(f"{key} is {shown.value(found)}, and {expected!r} in the bundle")
    if wrong:
        raise AdapterError(
            f"{shown.where(folder)} holds another adapter than the bundle: {'; '.join(wrong)}. Export the model with "
            "the adapter's own settings, which `edgeopt.adapters.from_peft(folder)` reads."
        )


def _read_weights(file: Path, adapter: AdapterSpec, specs: Mapping[str, TensorSpec]) -> dict[str, NDArray[Any]]:
    wanted = {entry.key: specs[entry.tensor] for entry in adapter.tensors}
    # A tensor may be kept in a wider type than the bundle has it, which is refused with a better word.
    limit = sum(8 * math.prod(spec.shape) for spec in wanted.values()) + HEADER_BYTES * (len(wanted) + 4)
    content = _read(file, limit)
    try:
        entries, start = read_entries(content, str(file.name))
    except BundleError as error:
        raise AdapterError(f"{shown.where(file)} cannot be read: {error}") from error
    known = {_plain(key): key for key in wanted}
    found = {known.get(_plain(name)): name for name in entries}
    unknown = [name for name in entries if _plain(name) not in known]
    missing = [key for key in wanted if key not in found]
    if unknown or missing or len(found) != len(entries):
        raise AdapterError(
            f"{shown.where(file)} is for another model, or for other layers of this one: the bundle has no "
            f"{shown.some(unknown) or '(none)'}, and the file lacks {shown.some(missing) or '(none)'}."
        )
    arrays = {}
    for key, spec in wanted.items():
        entry = entries[found[key]]
        if entry.shape != spec.shape:
            raise AdapterError(
                f"{shown.where(file)} holds `{key}` in the shape {list(entry.shape)[:8]}; the bundle's is "
                f"{list(spec.shape)}. The rank or the model is another one."
            )
        data = memoryview(content)[start + entry.begin : start + entry.end]
        arrays[spec.name] = _decoded(key, data, entry.dtype, spec, file)
    return arrays


def _decoded(key: str, data: memoryview, dtype: str, spec: TensorSpec, file: Path) -> NDArray[Any]:
    """A tensor in the bundle's type, if that has all of its values."""
    row = next((row for row in DTYPES.values() if row.safetensors == dtype), None)
    own = DTYPES[spec.dtype]
    if row is None or not (row is own or (row.name in ("float16", "bfloat16") and own.name in ("float32", "float64"))):
        raise AdapterError(
            f"{shown.where(file)} holds `{key}` as {shown.value(dtype)}, which {spec.dtype} does not hold without loss."
        )
    count = math.prod(spec.shape)
    if len(data) != count * row.storage.itemsize:
        raise AdapterError(f"{shown.where(file)} gives `{key}` {len(data)} bytes, which is not what its shape needs.")
    array = np.frombuffer(data, row.storage, count).reshape(spec.shape)
    if row is own:
        return array
    if row.name == "bfloat16":
        # The upper half of a float32.
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(own.storage)


def _plain(name: str) -> str:
    return name.removeprefix(PREFIX).removesuffix(OPTIONAL_END)


def _read(path: Path, limit: int) -> bytes:
    """A file that is not too large."""
    try:
        with open_regular(path) as file:
            content = file.read(limit + 1)
    except FileNotFoundError as error:
        raise AdapterError(
            f"There is no {shown.where(path)}; an adapter is a folder with {CONFIG_FILE} and {WEIGHTS_FILE}."
        ) from error
    except (OSError, ValueError, StorageError, BundleError) as error:
        raise AdapterError(f"{shown.where(path)} cannot be read: {error}.") from error
    if len(content) > limit:
        raise AdapterError(f"{shown.where(path)} is larger than what the bundle's adapter takes: another model's.")
    return content
