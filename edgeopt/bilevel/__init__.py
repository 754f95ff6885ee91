"""Problems of two levels: what minimises one loss over x, where another loss decides y for each x.

Hyper-parameters against a validation loss, weights of training samples, data that is to teach something. `lancbio`
solves them by gradients; `from_onnx` gets the gradients from two ONNX models, and `BilevelProblem` says what else can
take their place.
"""

from edgeopt.bilevel.graphs import OnnxProblem, from_onnx
from edgeopt.bilevel.lancbio import growing, lancbio
from edgeopt.bilevel.problem import BilevelProblem, Upper
from edgeopt.bilevel.result import BilevelResult, Progress, Record

__all__ = [
    "BilevelProblem",
    "BilevelResult",
    "OnnxProblem",
    "Progress",
    "Record",
    "Upper",
    "from_onnx",
    "growing",
    "lancbio",
]
