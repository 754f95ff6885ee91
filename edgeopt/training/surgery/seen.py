"""What a bundle evaluates and predicts with in the place of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.training.graphs.simplify import remove_unused
from edgeopt.training.surgery.cut import Cut
from edgeopt_runtime import BundleContents, TrainingSession
from edgeopt_runtime.manifest import GraphOutput, Signature

__all__ = ["seen_parameters"]

NumpyArray = np.ndarray[Any, Any]


def seen_parameters(contents: BundleContents) -> dict[str, NumpyArray]:
    """The average, or whatever the optimizer lets evaluation use, of each parameter that it does so for."""
    manifest, seen = contents.manifest, dict[str, NumpyArray]()
    for name in [name for name in ("predict", "evaluate") if name in manifest.signatures]:
        cut = Cut(manifest, name, contents.graphs[manifest.signatures[name].file])
        views = {parameter: view for parameter, view in cut.views.items() if parameter not in seen}
        if views:
            seen |= _computed(cut, views, contents)
    return seen


def _computed(cut: Cut, views: Mapping[str, ir.Value], contents: BundleContents) -> dict[str, NumpyArray]:
    """Run the part of a graph that they come from, as a step which makes them the parameters."""
    for parameter, value in views.items():
        cut.describe(value, parameter)
    graph = cut.model.graph
    graph.outputs[:] = list(views.values())
    remove_unused(cut.model)
    graph.inputs[:] = [value for value in graph.inputs if value.uses()]
    read = {value.name for value in graph.inputs}
    signature = Signature(
        "step.onnx",
        tuple(port for port in cut.signature.inputs if port.name in read),
        tuple(GraphOutput(value.name or "", "state", tensor=parameter) for parameter, value in views.items()),
    )
    model = ir.serde.serialize_model(cut.model).SerializeToString(deterministic=True)
    session = TrainingSession(
        BundleContents(replace(contents.manifest, signatures={"step": signature}), {"step.onnx": model}, contents.state)
    )
    session.step({})
    found = session.parameters()
    return {parameter: found[parameter] for parameter in views}
