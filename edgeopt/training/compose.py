"""Forward model and plan in, bundle out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import version

from edgeopt.errors import SignatureError
from edgeopt.losses import Loss
from edgeopt.metrics import Metric
from edgeopt.optimizers import OptimizerLike, as_groups
from edgeopt.tracing import IR_VERSION, OPSET
from edgeopt.training.constants import with_constants
from edgeopt.training.examining.decisions import decided, listed
from edgeopt.training.examining.own_losses import with_own_losses
from edgeopt.training.examining.statistics import BatchNorm, hold_statistics
from edgeopt.training.examining.suitability import unsuitable_output
from edgeopt.training.examining.unreached import find_unreached, reached
from edgeopt.training.forward import ForwardModel
from edgeopt.training.graphs.signatures import OPTIONAL, SIGNATURES
from edgeopt.training.narrowing import FrozenWeights, narrowed
from edgeopt.training.objective import Objective, resolve_objective
from edgeopt.training.plan import Plan, select_trainable
from edgeopt.training.reports import own_inputs, resolve_metrics
from edgeopt.training.updating.blocks import BLOCK_SIZE
from edgeopt.training.updating.groups import not_frozen, resolve
from edgeopt.training.updating.state import initial_state
from edgeopt.training.updating.units import JOINED_SIZE
from edgeopt.transforms import Transform
from edgeopt_runtime import BundleContents
from edgeopt_runtime.manifest import Decision, InputSpec, Manifest, OutputSpec

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
        loss: What is minimised; reads outputs of the model and the targets it asks for.
        optimizer: The update rule with its schedule; or groups of parameters with theirs, see `ParameterGroups`.
        transforms: What happens to gradients before the update, in order.
        metrics: What is reported beside the loss.
        trainable: Patterns of parameter names; None for all that are not frozen.
        output: The model output that loss and metrics read which name none; the first by default.
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
    model = with_own_losses(model, loss)
    outputs = [OutputSpec(name, spec.dtype, spec.shape) for name, spec in model.evaluate.specs(model.predicted).items()]
    chosen = output or model.default_output
    rules = as_groups(optimizer)
    selected = {name: model.parameters[name] for name in select_trainable(model, trainable)}
    trained = not_frozen(rules, selected)
    model = hold_statistics(model, trained, batch_norm)
    model = narrowed(model, trained, frozen_weights)
    returned = model.train.specs(model.train.outputs)
    labels = model.train.specs([name for name in model.train.inputs if name in model.labels])
    objective = resolve_objective(loss, chosen, returned, labels)
    evaluated = model.evaluate.specs(model.evaluate.outputs)
    # Dimensions without a name are called as the losses' targets call them.
    evaluated = {name: returned.get(name, spec) for name, spec in evaluated.items()}
    left_out = _only_in_training(model, objective)
    unreached, decisions = find_unreached(model.train, objective.outputs, trained)
    plan = Plan(
        objective=objective,
        groups=resolve(rules, selected, joined_size, unreached, block_size),
        transforms=tuple(transforms),
        metrics=resolve_metrics(metrics, objective, chosen, evaluated, returned),
        recompute=recompute if isinstance(recompute, str) else tuple(recompute),
    )
    taken = model.train.specs(model.train.inputs)
    inputs = [InputSpec(name, "model", *spec[1:3]) for name, spec in taken.items() if name not in model.labels]
    targets = _targets(plan, inputs)
    _refuse_measurements(plan)
    decisions += [decided("loss", term.outputs, text) for term in objective.terms for text in term.loss.assumptions()]
    decisions += [*left_out, *_only_in_evaluation(plan)]
    decisions += [found for term in objective.terms for found in unsuitable_output(model, term)]
    reached = [_reached(model, objective, share, trained) for share in range(1, objective.shares)]
    state = initial_state(model.parameters, model.buffers, plan.groups, seed, reached, model.encoded)
    wanted = [name for name in SIGNATURES if name in signatures or (name in OPTIONAL and hessian_vector)]
    graphs = {name: SIGNATURES[name](model, plan, state) for name in wanted}
    # A graph of views that shows nothing is none, and a model without adapters merges nothing.
    built = {name: graph for name, graph in graphs.items() if graph is not None and graph.signature.outputs}
    manifest = Manifest(
        opset=OPSET,
        ir_version=IR_VERSION,
        minimum_onnxruntime=MINIMUM_ONNXRUNTIME,
        tensors=tuple(state.tensors.values()),
        accumulators=tuple(state.accumulators.values()),
        joined=tuple(state.joined.values()),
        encoded=state.encoded,
        aliases={alias: name for alias, name in model.aliases.items() if name in state.tensors},
        adapters=model.adapters,
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


def _targets(plan: Plan, inputs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    names = [spec.name for spec in inputs]
    for term in plan.objective.terms:
        for target in term.inputs:
            if target.name in names:
                raise SignatureError(
                    f"The loss's input {target.name!r} has the name of a model input; rename it: "
                    f"{type(term.loss).__name__}(target='...')."
                )
    own = own_inputs(plan.metrics)
    for target in own:
        if target.name in names:
            raise SignatureError(
                f"The metric's input {target.name!r} has the name of a model input; rename it: target='...'."
            )
    return (*plan.objective.inputs, *own)


def _refuse_measurements(plan: Plan) -> None:
    """What is measured is divided by the weight of the loss, of which there must be one."""
    need = next(plan.measurements(), None)
    if need is not None and plan.objective.shares > 1:
        raise SignatureError(
            f"The optimizer has {type(need.kind).__name__} measured, which takes losses that are divided by the same "
            f"weight; these are means over {plan.objective.shares} different ones. Take another optimizer, or losses "
            "that count the same."
        )


def _only_in_training(model: ForwardModel, objective: Objective) -> list[Decision]:
    """What to say about losses of outputs that only training has, such as those of auxiliary heads.

    Raises:
        SignatureError: There are no others.
    """
    there = model.evaluate.outputs
    missing = [term for term in objective.terms if not set(term.outputs) <= set(there)]
    if len(missing) == len(objective.terms):
        (name, *_) = (name for name in missing[0].outputs if name not in there)
        raise SignatureError(f"The model has no output {name!r} in evaluation; its outputs there are {list(there)}.")
    if not missing:
        return []
    names = [term.name for term in missing]
    return [decided("loss", names, f"Evaluation reports the loss without {listed(names)}: only training has that.")]


def _only_in_evaluation(plan: Plan) -> list[Decision]:
    """What to say about metrics that training cannot report."""
    names = [each.metric.reported for each in plan.metrics if not each.trained]
    if not names:
        return []
    why = "what it reads is there in evaluation only" if len(names) == 1 else "what they read is there then only"
    return [decided("loss", names, f"Only evaluation reports {listed(names)}: {why}.")]


def _reached(model: ForwardModel, objective: Objective, share: int, trained: Sequence[str]) -> frozenset[str]:
    """The parameters that the losses of one share have a gradient for."""
    return reached(model.train, objective.outputs_of(share)) & frozenset(trained)
