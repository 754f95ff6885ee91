"""Which tensors ONNX Runtime puts into the same memory: settled once for a graph, before any sizes are given.

A tensor gets that of one whose last reader has run, if both are known to be of one size. The memory is not given back
in between, however long that is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from edgeopt.memory.shapes import Inferred, OpenShape

__all__ = ["VIEWS", "buffers"]

#: Operators that return the memory they were given.
VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")

# Those that may write over it.
_OVER = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "And", "Or", "Xor", "Not", "IsNaN", "Cast", "Clip"),
        *("Relu", "LeakyRelu", "Elu", "Gelu", "Softplus", "HardSigmoid", "Sigmoid", "Tanh", "Erf"),
        *("Sqrt", "Exp", "Log", "Reciprocal", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign"),
        *("Softmax", "LogSoftmax"),
    )
)


def buffers(
    nodes: Sequence[onnx.NodeProto],
    reads: Sequence[Collection[str]],
    elsewhere: Collection[str],
    sizes: Mapping[str, Inferred],
    planned: Mapping[str, OpenShape],
) -> dict[str, str]:
    """For each tensor that a node computes the one whose memory it gets, itself where that is fresh.

    Args:
        nodes: In the order in which they run.
        reads: What each of them reads, bodies included.
        elsewhere: Tensors that are not in the arena.
        sizes: Of the tensors.
        planned: Shapes as far as they are known without sizes.
    """
    last = {name: index for index, names in enumerate(reads) for name in names}
    owner: dict[str, str] = {}
    users: dict[str, int] = {}
    free: list[str] = []

    def share(name: str, buffer: str) -> None:
        owner[name] = buffer
        users[buffer] = users.get(buffer, 0) + 1

    def alike(one: str, other: str) -> bool:
        if sizes.get(one) is None or sizes.get(other) is None:
            return False
        shapes = planned.get(one), planned.get(other)
        known = None in shapes or (shapes[0] == shapes[1] and "" not in (shapes[0] or ()))
        return known and sizes[one].shape == sizes[other].shape and sizes[one].nbytes == sizes[other].nbytes

    def choose(index: int, node: onnx.NodeProto, position: int, name: str) -> None:
        if position == 0 and node.op_type in VIEWS:
            if node.input[0] in owner:
                share(name, owner[node.input[0]])
            return
        if position == 0 and node.op_type in _OVER:
            for operand in node.input[:2]:
                if operand in owner and last[operand] == index and users[owner[operand]] == 1 and alike(operand, name):
                    share(name, owner[operand])
                    return
        left = next((buffer for buffer in free if alike(buffer, name)), None)
        if left is not None:
            free.remove(left)
        share(name, name if left is None else left)

    for index, node in enumerate(nodes):
        for position, name in enumerate(node.output):
            if name and name not in elsewhere:
                choose(index, node, position, name)
        for name in (*reads[index], *(name for name in node.output if name and name not in last)):
            if name in owner and last.get(name, index) == index:
                users[owner[name]] -= 1
                if not users[owner[name]]:
                    free.insert(0, owner[name])
    return owner
