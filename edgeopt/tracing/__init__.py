"""Arrays that record ONNX nodes; a subset of the Python Array API.

The module itself is the namespace that array programs receive as `xp`: `edgeopt.tracing.sqrt(x)` appends a Sqrt node to
the graph of `x`.
"""

from edgeopt.tracing.array import Array, ArrayLike, to_ir_dtype, to_numpy_dtype
from edgeopt.tracing.branching import cond
from edgeopt.tracing.functions import *  # noqa: F403  # the Array API names are this module's own
from edgeopt.tracing.functions import __all__ as _array_api
from edgeopt.tracing.graphs import new_graph, new_model, trace_function
from edgeopt.tracing.operators import op
from edgeopt.tracing.scanning import scan
from edgeopt.tracing.tracer import DOMAIN, IR_VERSION, OPSET, Tracer

__all__ = [
    "DOMAIN",
    "IR_VERSION",
    "OPSET",
    "Array",
    "ArrayLike",
    "Tracer",
    "cond",
    "new_graph",
    "new_model",
    "op",
    "scan",
    "to_ir_dtype",
    "to_numpy_dtype",
    "trace_function",
    *_array_api,
]
