"""torch's table of translations is made once, and each export has a copy of its own."""

from __future__ import annotations

from torch.onnx._internal.exporter._registration import ONNXRegistry

from edgeopt_exporters.pytorch.torchlib import read_once


def test_the_table_is_torchs_and_what_is_registered_stays_out_of_the_next_copy():
    def own(x: object) -> object:
        return x

    original = ONNXRegistry.__dict__["from_torchlib"]
    with read_once():
        first = ONNXRegistry.from_torchlib(18)
        first.register_op(own, own)
        second = ONNXRegistry.from_torchlib(18)
    assert ONNXRegistry.__dict__["from_torchlib"] is original
    torchs = ONNXRegistry.from_torchlib(18)
    assert second.functions.keys() == torchs.functions.keys() == first.functions.keys() - {own}
    assert [len(entries) for entries in second.functions.values()] == [
        len(entries) for entries in torchs.functions.values()
    ]
