"""Write operators.md from the tables of gradients: `python docs/generate_operators.py`."""

from __future__ import annotations

import inspect
from pathlib import Path

from edgeopt.autodiff import REFUSED, RULES, ZERO_DERIVATIVE
from edgeopt.autodiff.registry import no_limits
from edgeopt.canonical import DECOMPOSITIONS
from edgeopt.canonical.registry import ADAPTERS, takes_every_node
from edgeopt.tracing import DOMAIN

PAGE = Path(__file__).with_name("operators.md")

HEAD = """# Operators

Written by `docs/generate_operators.py` from the tables themselves. A model may be of any opset from 7 on; older and
newer forms are said in opset 20 first, and functions are inlined. What becomes of an operator between the loss and
something that is trained:

| status | meaning |
|---|---|
| rule | it stays in the graph, and its gradient is computed by a rule |
| rewritten | it is said with other operators, which have rules |
| zero | nothing flows back through it, by its nature |
| refused | the export fails, with the reason and the way out that stand here |

A star behind the status: some of its nodes are refused, and the message says why. Operators elsewhere in the model,
in front of what is trained or in branches that the loss does not see, need no gradient and stay as they are.

Where a derivative is undefined, gradients are PyTorch's: 0 for the absolute value and for ReLU at 0, and at the limits
of a constant Clip; equal elements of a maximum or a minimum share (Max, Min, ReduceMax, ReduceMin), while the
first of them takes all in a pooling window. Rounding has derivative zero except in quantization, which
passes gradients straight through inside its range. Second derivatives come from the same rules.

"""

TITLES = {
    "": "The standard domain",
    "com.microsoft": "ONNX Runtime's own operators",
    "com.microsoft.nchwc": "ONNX Runtime's blocked layout",
    "ai.onnx.ml": "Classical machine learning",
    "ai.onnx.preview": "Preview",
    "ai.onnx.preview.training": "Training",
}


def sentence(text: str | None) -> str:
    """The first paragraph of a docstring on one line, as the cell of a table."""
    paragraph = inspect.cleandoc(text or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def entry(name: str) -> tuple[str, str]:
    """The status of an operator, and what there is to say about it."""
    if name in RULES:
        rule = RULES[name]
        return "rule" + ("" if rule.limits is no_limits else "*"), sentence(rule.apply.__doc__)
    if name in DECOMPOSITIONS:
        written = DECOMPOSITIONS[name]
        return "rewritten" + ("" if written.limits is takes_every_node else "*"), sentence(written.apply.__doc__)
    if name in ZERO_DERIVATIVE:
        return "zero", sentence(ZERO_DERIVATIVE[name])
    if name in REFUSED:
        return "refused", sentence(str(REFUSED[name]))
    return "rewritten", sentence(ADAPTERS[name][0].apply.__doc__)


def page() -> str:
    """The whole page."""
    renamed = {name for name in ADAPTERS if not any(name in table for table in (RULES, DECOMPOSITIONS, REFUSED))}
    names = sorted({*RULES, *DECOMPOSITIONS, *ZERO_DERIVATIVE, *REFUSED, *(renamed - set(ZERO_DERIVATIVE))})
    sections = []
    for domain, title in TITLES.items():
        own = [name for name in names if name.rpartition("::")[0] == domain]
        rows = [f"| {name.rpartition('::')[2]} | {' | '.join(entry(name))} |\n" for name in own]
        where = f" (`{domain}`)" if domain else ""
        sections.append(f"## {title}{where}\n\n| operator | status | notes |\n|---|---|---|\n{''.join(rows)}")
    # The markers around what native kernels compute are no operators of anybody's model.
    unknown = {name.rpartition("::")[0] for name in names} - {*TITLES, DOMAIN}
    if unknown:
        raise LookupError(f"No title for the domains {', '.join(sorted(unknown))}.")
    return HEAD + "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
