"""Write optimizers.md from the update rules: `python docs/generate_optimizers.py`.

With `--measure` the cost of a step is measured anew and kept in optimizers.json; without it the numbers in that file
are used, so that the page does not depend on the machine that writes it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime

from edgeopt import tracing
from edgeopt.optimizers import OPTIMIZERS, Averaged, Lookahead, Mechanic, Optimizer, Wrapper, initial_state

PAGE = Path(__file__).with_name("optimizers.md")
COSTS = Path(__file__).with_name("optimizers.json")
SHAPE = (1000, 1000)
REPEATS = 60

HEAD = """# Optimizers

Written by `docs/generate_optimizers.py` from the rules themselves. Fields are keyword arguments; `lr` is a number or a
schedule, and the only one that may be given by position. `betas=(0.9, 0.999)` stands for `beta1` and `beta2` (and
`beta3`) wherever a rule has them. g is the gradient, θ the parameter, t the number of the update, 1 at first.

Rules with a `decay` also have `weight_decay`, `cautious` and `maximize`:

```text
{descent}
```

*State* is the memory of the slots of a {shape} matrix in float32, as a multiple of the matrix's own. *Nodes* are
those of the exported graph that read or write a tensor of the parameter's size. *ms* is one step of that matrix on one
thread ({machine}); small differences mean nothing.

| name | class | state | nodes | ms |
|---|---|---|---|---|
"""


AROUND = """## Around any rule

These go around a rule, `inner`, inside a group or for all parameters, and around each other, though not around their
own kind.

"""

WRAPPERS: tuple[type[Wrapper], ...] = (Averaged, Lookahead, Mechanic)

TAIL = """## Beside these

LancBiO (Yang, Gao and Yuan, ICLR 2025) is no update of parameters from their gradients: it solves a problem of two
levels, with a loss and parameters for each, and is a solver of its own: [`edgeopt.bilevel.lancbio`](bilevel.md).

L-BFGS, SSBFGS, SSBroyden, Newton-CG and others that look at the loss and decide how far to go, and SVRG and SAGA, which
see all batches, are methods of `TrainingSession.minimize`: [Minimising a loss to the end](minimize.md).

What is not here, and why. An update sees one gradient of one batch, what else it asks for of that batch, and what it
keeps.

- SAM (Foret et al., ICLR 2021, arXiv:2010.01412) and its kin need a second gradient, at parameters that depend on the
  first.
- MADA (Ozkara et al., ICML 2024, arXiv:2401.08893) differentiates its own updates with respect to their numbers.
- LOMO and AdaLomo (Lv et al. 2023, arXiv:2306.09782 and 2310.10195) save memory by updating inside the backward pass:
  how, and not what, is computed is what is new in the first, and the second is a factored rule like `adafactor`.
- Ranger21 (Wright and Demeure 2021, arXiv:2106.13731) is a bundle of eight things, most of which are here on their own:
  gradient transforms, schedules, `ranger`.
- The sparse momentum of SPAM, which is off by default in its reference.
"""


def trace(rule: Optimizer, shape: tuple[int, ...] = SHAPE) -> tuple[ir.Graph, dict[str, np.ndarray[Any, Any]]]:
    """Record one update, and return its graph and values for its inputs."""
    param = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    numbers = {**rule.hyperparameters(), "lr": 1e-3}
    state = initial_state(rule, param)
    needed = {**rule.ingredients(param), **rule.shared_ingredients({"": param})}
    ingredients = {name: np.zeros(entry.array_shape(shape), param.dtype) for name, entry in needed.items()}
    inputs = {"param": param, "grad": 0.1 * param[::-1], **state, **ingredients, "step": np.asarray(2)}
    inputs |= {f"hyper.{name}": np.asarray(value) for name, value in numbers.items()}
    graph = tracing.new_graph("update")
    tracer = tracing.Tracer(graph)
    x = {name: tracer.input(name, value.dtype, value.shape) for name, value in inputs.items()}
    hyper = {name: x[f"hyper.{name}"] for name in numbers}
    slots = {slot: x[slot] for slot in (*state, *ingredients)}
    moved, updated = rule.update(tracing, x["param"], x["grad"], slots, hyper, x["step"])
    for name, value in {"param": moved, **updated}.items():
        tracer.output(value, f"next.{name}")
    return graph, inputs


def large_nodes(graph: ir.Graph) -> int:
    """The number of nodes that read or write a tensor of the parameter's size."""

    def large(value: ir.Value | None) -> bool:
        dims = () if value is None or value.shape is None else tuple(value.shape)
        return np.prod([int(dim) for dim in dims if isinstance(dim, int)], initial=1) >= np.prod(SHAPE)

    return sum(any(large(value) for value in (*node.inputs, *node.outputs)) for node in graph)


def milliseconds(graph: ir.Graph, inputs: dict[str, np.ndarray[Any, Any]]) -> float:
    """The shortest of several steps on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = ir.to_proto(tracing.new_model(graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {value.name: inputs[value.name] for value in session.get_inputs()}
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - begin)
    return 1000.0 * min(times)


def state_size(rule: Optimizer) -> str:
    """The memory of the state over that of the parameter, as text."""
    param = np.zeros(SHAPE, np.float32)
    size = sum(value.nbytes for value in initial_state(rule, param).values()) / param.nbytes
    return f"{size:.3f}".rstrip("0").rstrip(".")


def description(cls: type[object]) -> tuple[str, str]:
    """First paragraph and the rest of a class's docstring as Markdown, without the exceptions it raises."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n\nRaises:")[0]
    fenced = re.sub(
        r"^(.*?)::\n\n((?:    .*\n|\n)+)",
        lambda match: (
            f"{match[1] + ':' if match[1] else ''}\n\n```text\n{inspect.cleandoc(match[2]).rstrip()}\n```\n\n"
        ),
        text + "\n",
        flags=re.MULTILINE,
    )
    first, _, rest = re.sub(r"\n{3,}", "\n\n", fenced).strip().partition("\n\n")
    return first, rest


def section(name: str, cls: type[Optimizer]) -> str:
    """What the page says about one rule."""
    defaults = [
        f"{field.name}={getattr(cls(), field.name)!r}"
        for field in dataclasses.fields(cls)
        if field.name not in ("cautious", "maximize")
    ]
    first, rest = description(cls)
    return f"## {name}\n\n{first}\n\n`{cls.__name__}({', '.join(defaults)})`\n\n{rest}\n"


def around(cls: type[Wrapper]) -> str:
    """What the page says about one wrapper."""
    own = [f"{field.name}={field.default!r}" for field in dataclasses.fields(cls) if field.name != "inner"]
    first, rest = description(cls)
    return f"### {cls.__name__}\n\n{first}\n\n`{cls.__name__}({', '.join(('inner', *own))})`\n\n{rest}\n"


def page(costs: dict[str, Any]) -> str:
    """The whole page."""
    rules = {name: cls() for name, cls in OPTIMIZERS.items()}
    rows = [
        f"| [{name}](#{name}) | `{type(rule).__name__}` | {state_size(rule)} | {large_nodes(trace(rule)[0])} | "
        f"{costs['milliseconds'][name]:.1f} |\n"
        for name, rule in rules.items()
    ]
    head = HEAD.format(descent=DECAY, shape=f"{SHAPE[0]} x {SHAPE[1]}", machine=costs["machine"])
    sections = "\n".join(section(name, cls) for name, cls in OPTIMIZERS.items())
    wrappers = "\n".join(around(cls) for cls in WRAPPERS)
    return f"{head}{''.join(rows)}\n{sections}\n{AROUND}{wrappers}\n{TAIL}"


DECAY = """decay="gradient"    g ← g + weight_decay·θ, and all that follows sees it
decay="before"      θ ← θ·(1 - lr·weight_decay), then the step
decay="after"       the step, then θ ← θ·(1 - lr·weight_decay)
decay="proximal"    the step, then θ ← θ/(1 + lr·weight_decay)
decay="cautious"    θ ← θ·(1 - lr·weight_decay) with the step, but only where the step shrinks θ too
cautious            no step where it disagrees in sign with g, and a larger one elsewhere
maximize            g is negated first"""


def measure() -> dict[str, Any]:
    """The cost of every rule on this machine."""
    costs = {name: round(milliseconds(*trace(cls())), 2) for name, cls in OPTIMIZERS.items()}
    return {"machine": f"ONNX Runtime {onnxruntime.__version__}, {processor()}", "milliseconds": costs}


def processor() -> str:
    """The name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", info.read_text(encoding="utf-8")) if info.exists() else None
    return found[1] if found else "an unnamed processor"


if __name__ == "__main__":
    if "--measure" in sys.argv[1:]:
        COSTS.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(COSTS.read_text(encoding="utf-8"))), encoding="utf-8")
