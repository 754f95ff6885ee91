"""Protobuf messages without their schema: taken apart, changed somewhere within, and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

# Number, wire type, and the value: a number for VARINT, else bytes.
Field = tuple[int, int, int | bytes]


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def parse(content: bytes) -> list[Field] | None:
    """The fields of a message, or None if this is none."""
    fields: list[Field] = []
    position = 0
    try:
        while position < len(content):
            key, position = _varint(content, position)
            number, kind = key >> 3, key & 7
            if kind == VARINT:
                number_value, position = _varint(content, position)
                fields.append((number, kind, number_value))
                continue
            if kind not in (FIXED64, LENGTH, FIXED32) or not number:
                return None
            size = {FIXED64: 8, FIXED32: 4}.get(kind, -1)
            if size < 0:
                size, position = _varint(content, position)
            if position + size > len(content):
                return None
            fields.append((number, kind, content[position : position + size]))
            position += size
    except IndexError:
        return None
    return fields


def _number(value: int) -> bytes:
    value %= 2**64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def join(fields: Sequence[Field]) -> bytes:
    """The message that has these fields."""
    parts = []
    for number, kind, value in fields:
        parts.append(_number(number << 3 | kind))
        if isinstance(value, int):
            parts.append(_number(value))
        else:
            parts.extend([_number(len(value)), value] if kind == LENGTH else [value])
    return b"".join(parts)


def edited(random: Random, content: bytes, numbers: Sequence[int], texts: Sequence[bytes]) -> bytes:
    """The message with one field changed, at any depth."""
    fields = parse(content)
    if not fields:
        return content + random.choice([b"", b"\x08\x01", b"\x3a\x00", b"\xff"])
    index = random.randrange(len(fields))
    number, kind, value = fields[index]
    if isinstance(value, bytes) and kind == LENGTH and value and parse(value) and random.random() < 0.9:
        fields[index] = number, kind, edited(random, value, numbers, texts)
    else:
        _change(random, fields, index, numbers, texts)
    return join(fields)


def _change(random: Random, fields: list[Field], index: int, numbers: Sequence[int], texts: Sequence[bytes]) -> None:
    number, kind, value = fields[index]
    choice = random.randrange(6)
    if choice == 0:
        del fields[index]
    elif choice == 1:
        fields.insert(random.randrange(len(fields) + 1), fields[index])
    elif choice == 2:
        fields[index] = random.randrange(1, 32), kind, value
    elif choice == 3:
        other = random.choice([field for field in fields if field[1] == kind])
        fields[index] = number, kind, other[2]
    elif isinstance(value, int):
        fields[index] = number, kind, random.choice(numbers)
    elif kind == LENGTH:
        fields[index] = number, kind, random.choice([*texts, value * 2, bytes(8), b"\xff" * 8])
    else:
        fields[index] = number, kind, bytes(random.choice([b"\0", b"\xff", b"\x7f"])) * len(value)
