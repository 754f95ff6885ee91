"""Files of adapters from strangers: refused with a typed error, or read as if nothing had happened."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeopt_runtime import AdapterError, BundleContents, ManifestError, TrainingSession, pack_bundle, read_bundle
from edgeopt_runtime.adapters import CONFIG_FILE, WEIGHTS_FILE, read_adapters, write_adapters
from edgeopt_runtime.manifest import AdapterSpec, AdapterTensor

fuzz = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def adapted(contents) -> BundleContents:
    """A bundle whose trainable parameters are an adapter's."""
    names = [spec.name for spec in contents.manifest.tensors if spec.trainable]
    tensors = tuple(AdapterTensor(f"base_model.model.{name}", name) for name in names)
    adapter = AdapterSpec("lora", "lora", {"peft_type": "LORA", "r": 8, "targets": ["a", "b"], "empty": None}, tensors)
    manifest = replace(contents.manifest, adapters=(adapter,))
    return BundleContents(manifest, contents.graphs, contents.state)


def written(adapted, folder):
    write_adapters(folder, adapted.manifest, adapted.state)
    return folder


def test_an_adapter_comes_back(adapted, tmp_path):
    found = read_adapters(written(adapted, tmp_path / "new"), adapted.manifest)
    assert found.keys() == {entry.tensor for entry in adapted.manifest.adapters[0].tensors}
    for name, array in found.items():
        np.testing.assert_array_equal(array, adapted.state[name])


def test_a_manifest_keeps_its_adapters(adapted):
    packed = pack_bundle(adapted.manifest, adapted.graphs, adapted.state)
    assert [vars(one) for one in read_bundle(packed).manifest.adapters] == [
        {**vars(one), "config": {**one.config, "targets": ("a", "b")}} for one in adapted.manifest.adapters
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../up"}, "small letters"),
        ({"name": ""}, "small letters"),
        ({"config": {"r": {"a": 1}}}, "a number"),
        ({"tensors": (AdapterTensor("key", "nowhere"),)}, "not a parameter"),
        ({"tensors": (AdapterTensor("key", "a"), AdapterTensor("key", "b"))}, "twice"),
    ],
)
def test_a_manifest_with_an_impossible_adapter_is_refused(adapted, change, message):
    manifest = replace(adapted.manifest, adapters=(replace(adapted.manifest.adapters[0], **change),))
    with pytest.raises(ManifestError, match=message):
        pack_bundle(manifest, adapted.graphs, adapted.state)


@fuzz
@given(data=st.data())
def test_a_changed_file_is_refused_or_read(adapted, tmp_path, data):
    """Bytes of the header may be anything; those of the numbers are numbers whatever they are."""
    file = written(adapted, tmp_path) / WEIGHTS_FILE
    content = bytearray(file.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    file.write_bytes(content)
    session = TrainingSession(adapted)
    before = session.state()
    try:
        session.load_adapters(tmp_path)
    except AdapterError:
        pass
    else:
        before |= read_adapters(tmp_path, adapted.manifest)
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, before[name])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@fuzz
@given(config=st.dictionaries(st.sampled_from(["peft_type", "r", "lora_alpha", "other"]), _JSON) | _JSON)
def test_any_configuration_is_refused_or_taken(adapted, tmp_path, config):
    written(adapted, tmp_path)
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config))
    try:
        read_adapters(tmp_path, adapted.manifest)
    except AdapterError:
        assert not (isinstance(config, dict) and config.get("peft_type") == "LORA" and config.get("r", 8) == 8)


def test_what_is_no_file_is_not_opened(adapted, tmp_path):
    written(adapted, tmp_path)
    (tmp_path / WEIGHTS_FILE).unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / WEIGHTS_FILE)
        with pytest.raises(AdapterError, match="not a regular file"):
            read_adapters(tmp_path, adapted.manifest)
    (tmp_path / CONFIG_FILE).write_bytes(b"[" * 100_000)
    with pytest.raises(AdapterError, match="not JSON"):
        read_adapters(tmp_path, adapted.manifest)


def test_a_file_that_is_far_too_large_is_not_read(adapted, tmp_path):
    file = written(adapted, tmp_path) / WEIGHTS_FILE
    with file.open("r+b") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(AdapterError, match="larger than"):
        read_adapters(tmp_path, adapted.manifest)
