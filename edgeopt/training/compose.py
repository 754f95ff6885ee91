"""Forward model and plan in, bundle out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import version

import onnx_ir as ir

from edgeopt.errors import SignatureError
from edgeopt.losses import ArraySpec, Loss
from edgeopt.metrics import Metric
from edgeopt.optimizers import OptimizerLike, as_groups
from edgeopt.tracing import IR_VERSION, OPSET, to_numpy_dtype
from edgeopt.tracing.shapes import from_ir
from edgeopt.training.constants import with_constants
from edgeopt.training.examining.statistics import BatchNorm, hold_statistics
from edgeopt.training.examining.suitability import unsuitable_output
from edgeopt.training.examining.unreached import find_unreached
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt.training.graphs.signatures import OPTIONAL, SIGNATURES
from edgeopt.training.narrowing import FrozenWeights, narrowed
from edgeopt.training.plan import Plan, select_trainable
from edgeopt.training.updating.blocks import BLOCK_SIZE
from edgeopt.training.updating.groups import not_frozen, resolve
from edgeopt.training.updating.state import initial_state
from edgeopt.training.updating.units import JOINED_SIZE
from edgeopt.transforms import Transform
from edgeopt_runtime import BundleContents
from edgeopt_runtime.manifest import InputSpec, Manifest, OutputSpec

__all__ = ["MINIMUM_ONNXRUNTIME", "compose"]

# The first release whose CPU provider has opset 20.
MINIMUM_ONNXRUNTIME = "1.17.0"


def compose(
    model: ForwardModel,
    *,
    loss: Loss,
    optimizer: OptimizerLike,
    transforms: Sequence[Transform] = (),
    metrics: Sequence[Metric] = (),
    trainable: str | Iterable[str] | None = None,
    output: str | None = None,
    seed: int = 0,
    joined_size: int = JOINED_SIZE,
    block_size: int = BLOCK_SIZE,
    hessian_vector: bool = False,
    recompute: str | Iterable[str] = (),
    batch_norm: BatchNorm = "auto",
    frozen_weights: FrozenWeights = "float32",
    signatures: Collection[str] = SIGNATURES.keys() - OPTIONAL,
) -> BundleContents:
    """Build the graphs and the state of a training bundle.

    Args:
        model: The forward computation in both modes.
        loss: What is minimised; reads one output of the model and the targets it asks for.
        optimizer: The update rule with its schedule; or groups of parameters with theirs, see `ParameterGroups`.
        transforms: What happens to gradients before the update, in order.
        metrics: What is reported beside the loss.
        trainable: Patterns of parameter names; None for all that are not frozen.
        output: The model output that loss and metrics read; the first by default.
        seed: Start of the random numbers that dropout draws on the device.
        joined_size: Parameters of at most so many elements are updated together where the rule allows it.
        block_size: Large parameters are updated in blocks of about so many elements where the rule allows it, which is
            faster on a CPU; 0 for whole parameters, which is faster elsewhere.
        hessian_vector: Whether to add the graph of Hessian-vector products.
        recompute: "auto" or patterns of node names: activations that are computed again in the backward pass.
        batch_norm: Which normalisations use running statistics in training, see `BatchNorm`.
        frozen_weights: How large weights that do not train are stored, see `narrowed`.
        signatures: The graphs to build, besides that of Hessian-vector products.

    Raises:
        ParameterPatternError: A pattern matches nothing.
        SignatureError: The loss does not fit the output, a metric does not fit both, or names collide.
        UnsupportedOperatorError: The gradient needs an operator without a rule.
        UnsupportedModelError: No gradient reaches any parameter.
    """
    outputs = [
        OutputSpec(name, spec.dtype, spec.shape) for name, spec in _specs(model.evaluate, model.predicted).items()
    ]
    chosen = output or model.scores or model.train.outputs[0]
    for graph, mode in ((model.train, "training"), (model.evaluate, "evaluation")):
        if chosen not in graph.outputs:
            raise SignatureError(
                f"The model has no output {chosen!r} in {mode}; its outputs there are {list(graph.outputs)}."
            )
    rules = as_groups(optimizer)
    selected = {name: model.parameters[name] for name in select_trainable(model, trainable)}
    trained = not_frozen(rules, selected)
    model = hold_statistics(model, trained, batch_norm)
    model = narrowed(model, trained, frozen_weights)
    unreached, decisions = find_unreached(model.train, chosen, trained)
    plan = Plan(
        loss=loss,
        groups=resolve(rules, selected, joined_size, unreached, block_size),
        transforms=tuple(transforms),
        metrics=tuple(metrics),
        output=chosen,
        recompute=recompute if isinstance(recompute, str) else tuple(recompute),
    )
    inputs = [
        InputSpec(name, "model", spec.dtype, spec.shape)
        for name, spec in _specs(model.train, model.train.inputs).items()
    ]
    prediction = _specs(model.train, (chosen,))[chosen]
    targets = _targets(plan, prediction, inputs)
    decisions += unsuitable_output(model, chosen, loss)
    state = initial_state(model.parameters, model.buffers, plan.groups, seed, model.encoded)
    wanted = [name for name in SIGNATURES if name in signatures or (name in OPTIONAL and hessian_vector)]
    graphs = {name: SIGNATURES[name](model, plan, state, targets) for name in wanted}
    # A graph of views that shows nothing is none.
    built = {name: graph for name, graph in graphs.items() if graph.signature.outputs}
    manifest = Manifest(
        opset=OPSET,
        ir_version=IR_VERSION,
        minimum_onnxruntime=MINIMUM_ONNXRUNTIME,
        tensors=tuple(state.tensors.values()),
        accumulators=tuple(state.accumulators.values()),
        joined=tuple(state.joined.values()),
        encoded=state.encoded,
        aliases={alias: name for alias, name in model.aliases.items() if name in state.tensors},
        hyperparameters=tuple(plan.hyperparameters()),
        inputs=(*inputs, *targets),
        outputs=tuple(outputs),
        signatures={name: graph.signature for name, graph in built.items()},
        producer={"edgeopt": version("edgeopt"), **model.provenance, **plan.provenance()},
        decisions=(*model.decisions, *decisions),
    )
    return BundleContents(
        manifest=with_constants(manifest),
        graphs={graph.signature.file: graph.model for graph in built.values()},
        state=state.values,
    )


def _specs(graph: ForwardGraph, names: Sequence[str]) -> dict[str, ArraySpec]:
    """dtype and shape of inputs or outputs; an unnamed dimension gets a name of its own."""
    values: dict[str, ir.Value] = {value.name or "": value for value in graph.model.graph.inputs}
    values.update(
        zip((*graph.outputs, *graph.updated_buffers, *graph.updated_parameters), graph.model.graph.outputs, strict=True)
    )
    specs = {}
    for name in names:
        value = values[name]
        if value.dtype is None or value.shape is None:
            raise SignatureError(f"The type or rank of {name!r} is not known.")
        shape = tuple(f"{name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(from_ir(value.shape)))
        specs[name] = ArraySpec(name, to_numpy_dtype(value.dtype).name, shape)
    return specs


def _targets(plan: Plan, prediction: ArraySpec, inputs: Sequence[InputSpec]) -> list[InputSpec]:
    specs = plan.loss.targets(prediction)
    for metric in plan.metrics:
        metric.check(plan.loss, prediction, specs)
    targets = [InputSpec(spec.name, "loss", *spec[1:]) for spec in specs]
    for target in targets:
        if target.name in [spec.name for spec in inputs]:
            raise SignatureError(
                f"The loss's input {target.name!r} has the name of a model input; rename it: "
                f"{type(plan.loss).__name__}(target='...')."
            )
    return targets
