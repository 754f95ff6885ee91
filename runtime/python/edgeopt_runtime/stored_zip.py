"""Zip archives whose entries are stored uncompressed: written in pieces, read without trust.

The standard library's `zipfile` reads and writes the same archives; this module exists because a state must go to the
disk without being copied, through one place that can fail safely, and because a device must not inflate anything it
was sent. Format: APPNOTE.TXT of PKWARE, sections 4.3 (records) and 4.5.3 (sizes and offsets beyond 32 bits, ZIP64).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from edgeopt_runtime import shown
from edgeopt_runtime.errors import ForeignBundleError, TamperedBundleError, TruncatedBundleError
from edgeopt_runtime.tensors import Buffer

__all__ = ["Entry", "Source", "index", "pack", "read"]

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")

# From here on a size or an offset goes into a ZIP64 field.
LIMIT = 0xFFFFFFFF
SATURATED = 0xFFFFFFFF
LONGEST_COMMENT = 0xFFFF
MOST_ENTRIES = 64
# A record of the directory with a name, extra fields and a comment, each of up to 64 KiB.
LARGEST_CENTRAL = 46 + 3 * 0xFFFF

# Entries carry no time, so that the same bundle is the same bytes: 1980-01-01, the first day zip knows.
DOS_DATE = 0x21
# Flag bits: names are UTF-8; encrypted in one of three ways.
UTF8 = 0x0800
ENCRYPTED = 0x2041
# Sizes and checksum follow the content, for want of a way back; the directory has them all the same.
SIZES_LATER = 0x0008


class Source(Protocol):
    """Something to read an archive from: a size in bytes and positioned reads."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``; raises `TruncatedBundleError` when there are fewer."""


class Entry(NamedTuple):
    """Where one stored file lies: offset of its local header, size in bytes and CRC-32."""

    name: str
    header: int
    size: int
    crc: int


def pack(files: Iterable[tuple[str, Sequence[Buffer]]]) -> Iterator[Buffer]:
    """The pieces of an archive that holds ``files``, each given as its name and the pieces of its content."""
    central = []
    offset = 0
    for name, pieces in files:
        encoded = name.encode()
        size = crc = 0
        for piece in pieces:
            size += len(piece)
            crc = zlib.crc32(piece, crc)
        large = size >= LIMIT
        extra = struct.pack("<2H2Q", 1, 16, size, size) if large else b""
        short = SATURATED if large else size
        version = 45 if large else 20
        yield (
            LOCAL.pack(b"PK\3\4", version, UTF8, 0, 0, DOS_DATE, crc, short, short, len(encoded), len(extra))
            + encoded
            + extra
        )
        yield from pieces
        fields = [size, size] if large else []
        if offset >= LIMIT:
            fields.append(offset)
        extra = struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""
        short_offset = SATURATED if offset >= LIMIT else offset
        version = 45 if fields else 20
        central.append(
            CENTRAL.pack(
                *(b"PK\1\2", version, version, UTF8, 0, 0, DOS_DATE, crc, short, short, len(encoded), len(extra)),
                *(0, 0, 0, 0, short_offset),
            )
            + encoded
            + extra
        )
        offset += LOCAL.size + len(encoded) + (20 if large else 0) + size
    directory = b"".join(central)
    count = len(central)
    if offset >= LIMIT:
        directory_end = offset + len(directory)
        yield directory
        yield END64.pack(b"PK\6\6", END64.size - 12, 45, 45, 0, 0, count, count, len(directory), offset)
        yield LOCATOR64.pack(b"PK\6\7", 0, directory_end, 1)
        yield END.pack(b"PK\5\6", 0, 0, count, count, len(directory), SATURATED, 0)
    else:
        yield directory
        yield END.pack(b"PK\5\6", 0, 0, count, count, len(directory), offset, 0)


def index(source: Source) -> dict[str, Entry]:
    """The entries of an archive by name.

    Raises:
        ForeignBundleError: The bytes are no zip archive, or one that holds compressed or encrypted entries.
        TruncatedBundleError: The archive ends early.
        TamperedBundleError: Its records contradict each other.
    """
    count, size, start, end = _end_record(source)
    if start + size != end:
        raise TamperedBundleError("The archive's directory does not lie where the archive says it does.")
    if count > MOST_ENTRIES or size > MOST_ENTRIES * LARGEST_CENTRAL:
        raise ForeignBundleError(f"The archive holds {count} files, listed in {size} bytes; a bundle holds a handful.")
    directory = source.read(start, size)
    entries: dict[str, Entry] = {}
    position = 0
    for _ in range(count):
        entry, position = _central_entry(directory, position)
        if entry.name in entries:
            raise TamperedBundleError(f"The archive holds {shown.value(entry.name)} twice.")
        entries[entry.name] = entry
    if position != size:
        raise TamperedBundleError("The archive's directory has another length than its entries.")
    following = start
    for entry in sorted(entries.values(), key=lambda entry: entry.header, reverse=True):
        if entry.header + LOCAL.size + len(entry.name.encode()) + entry.size > following:
            raise TamperedBundleError(
                f"The entry {shown.value(entry.name)} of the archive overlaps what comes after it."
            )
        following = entry.header
    return entries


def read(source: Source, entry: Entry) -> bytes:
    """The content of an entry.

    Raises:
        TruncatedBundleError: The archive ends early.
        TamperedBundleError: The content differs from its checksum, or the entry's two headers from each other.
    """
    header = source.read(entry.header, LOCAL.size)
    signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length = LOCAL.unpack(header)
    name = source.read(entry.header + LOCAL.size, name_length)
    same = signature == b"PK\3\4" and method == 0 and not flags & ENCRYPTED and name == entry.name.encode()
    if not flags & SIZES_LATER:
        same = same and crc == entry.crc and {packed, size} <= {SATURATED, entry.size}
    if not same:
        raise TamperedBundleError(f"The header of {entry.name!r} differs from the archive's directory.")
    content = source.read(entry.header + LOCAL.size + name_length + extra_length, entry.size)
    if zlib.crc32(content) != entry.crc:
        raise TamperedBundleError(f"{entry.name!r} is damaged: its checksum differs from the archive's directory.")
    return content


def _end_record(source: Source) -> tuple[int, int, int, int]:
    """Number of entries, size and offset of the directory, and the offset at which the records after it begin."""
    if source.size < 4 or source.read(0, 4) not in (b"PK\3\4", b"PK\5\6"):
        if b"PK\3\4".startswith(source.read(0, min(4, source.size))):
            raise TruncatedBundleError("The archive ends within its first bytes.")
        raise ForeignBundleError("This is not a zip archive.")
    tail_length = min(source.size, END.size + LONGEST_COMMENT)
    tail_start = source.size - tail_length
    tail = source.read(tail_start, tail_length)
    position = tail.rfind(b"PK\5\6")
    if position < 0 or position + END.size > tail_length:
        raise TruncatedBundleError("The archive has no directory at its end: it was cut off, or is still being sent.")
    _, disk, first_disk, here, count, size, start, comment = END.unpack_from(tail, position)
    if position + END.size + comment != tail_length or disk or first_disk or here != count:
        raise TamperedBundleError("The record at the end of the archive contradicts itself.")
    end = tail_start + position
    locator = end - LOCATOR64.size
    if locator >= 0 and source.read(locator, 4) == b"PK\6\7":
        return _end_record64(source, locator)
    return count, size, start, end


def _end_record64(source: Source, locator: int) -> tuple[int, int, int, int]:
    _, disk, position, disks = LOCATOR64.unpack(source.read(locator, LOCATOR64.size))
    if disk or disks != 1 or position + END64.size > locator:
        raise TamperedBundleError("The archive's record of its 64-bit sizes is damaged.")
    record = END64.unpack(source.read(position, END64.size))
    signature, _, _, _, disk, first_disk, here, count, size, start = record
    if signature != b"PK\6\6" or disk or first_disk or here != count:
        raise TamperedBundleError("The archive's record of its 64-bit sizes is damaged.")
    return count, size, start, position


def _central_entry(directory: bytes, position: int) -> tuple[Entry, int]:
    """The entry of the directory at ``position``, and the position after it."""
    if position + CENTRAL.size > len(directory):
        raise TamperedBundleError("The archive's directory ends within an entry.")
    fields = CENTRAL.unpack_from(directory, position)
    signature, _, _, flags, method, _, _, crc, packed, size, name_length, extra_length, comment_length = fields[:13]
    disk, header = fields[13], fields[16]
    name_start = position + CENTRAL.size
    extra_start = name_start + name_length
    end = extra_start + extra_length + comment_length
    if signature != b"PK\1\2" or end > len(directory):
        raise TamperedBundleError("An entry of the archive's directory is damaged.")
    try:
        name = directory[name_start:extra_start].decode()
    except UnicodeDecodeError as error:
        raise ForeignBundleError("The archive holds a file whose name is not UTF-8.") from error
    if flags & ENCRYPTED:
        raise ForeignBundleError(f"{shown.value(name)} is encrypted; bundles are not.")
    if method != 0:
        raise ForeignBundleError(f"{shown.value(name)} is compressed; the entries of a bundle are stored (zip -0).")
    wide = _wide_fields(directory[extra_start : extra_start + extra_length])
    if SATURATED in (size, packed, header):
        # The 64-bit fields hold, in this order, only those whose 32-bit field is saturated.
        values = iter(wide)
        size = next(values, -1) if size == SATURATED else size
        packed = next(values, -1) if packed == SATURATED else packed
        header = next(values, -1) if header == SATURATED else header
    if size != packed or size < 0 or header < 0 or disk:
        raise TamperedBundleError(f"The sizes of {shown.value(name)} in the archive's directory contradict each other.")
    return Entry(name, header, size, crc), end


def _wide_fields(extra: bytes) -> tuple[int, ...]:
    """The 64-bit numbers of a ZIP64 extra field, or none."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if kind == 1 and position + length <= len(extra):
            count = min(length // 8, 3)
            return struct.unpack_from(f"<{count}Q", extra, position)
        position += length
    return ()
