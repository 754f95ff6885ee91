"""Older forms of operators, back to opset 7, said at the target opset; importing this package fills the table.

Where an operator has no entry, a node of any opset from 7 on means at the target what it meant then: later versions
added types, or attributes whose defaults keep the older meaning.
"""

from edgeopt.canonical.older import attributes, control_flow, normalisation, resize, softmax

__all__ = ["attributes", "control_flow", "normalisation", "resize", "softmax"]
