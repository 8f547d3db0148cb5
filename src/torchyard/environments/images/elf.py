"""What a program or a shared library needs to be loaded, read from its ELF headers.

Owns: the names of needed libraries, the search path and the loader in the file itself.
Leaves: finding libraries by name to system_files.py.
Always: the file is read and never run or loaded, as `ldd` would do; a broken or foreign file needs
nothing.

Source: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html (ELF and program headers,
dynamic section).
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NULL, _NEEDED, _STRING_TABLE, _SONAME, _RPATH, _RUNPATH, _STRING_SIZE = 0, 1, 5, 14, 15, 29, 10
# Far more than any real file has; a broken one may claim anything.
_MOST_HEADERS, _MOST_DYNAMIC_BYTES, _MOST_STRING_BYTES = 512, 1 << 20, 16 << 20
_MOST_PATH_BYTES = 4096


@dataclass(frozen=True)
class Needs:
    """`kind` is the ELF class and machine, which a library has to share with its user."""

    kind: tuple[int, int]
    libraries: tuple[str, ...] = ()
    search_path: tuple[str, ...] = ()
    loader: str = ""


def read(file: str | Path) -> Needs | None:
    """What the file needs; None if it is not ELF, or is broken. A link is followed."""
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return None
            return _read(opened, os.path.dirname(os.path.realpath(file)))
    except (OSError, struct.error, ValueError, IndexError, OverflowError, ZeroDivisionError):
        return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would wait for a writer


def _read(opened: IO[bytes], folder: str) -> Needs | None:
    start = opened.read(64)
    if start[:4] != b"\x7fELF" or start[4] not in (1, 2) or start[5] not in (1, 2):
        return None
    is_64, order = start[4] == 2, "<" if start[5] == 1 else ">"
    (machine,) = struct.unpack_from(order + "H", start, 18)
    kind = (start[4], machine)
    at, size, count = (
        (*struct.unpack_from(order + "Q", start, 32), *struct.unpack_from(order + "HH", start, 54))
        if is_64
        else (
            *struct.unpack_from(order + "I", start, 28),
            *struct.unpack_from(order + "HH", start, 42),
        )
    )
    opened.seek(at)
    table = opened.read(size * min(count, _MOST_HEADERS))
    headers = [_header(table, number * size, is_64, order) for number in range(len(table) // size)]
    loader = ""
    dynamic: list[tuple[int, int]] = []
    for type, offset, _, length in headers:
        opened.seek(offset)
        if type == _INTERPRETER:
            loader = os.fsdecode(opened.read(min(length, _MOST_PATH_BYTES)).rstrip(b"\0"))
        elif type == _DYNAMIC:
            content = opened.read(min(length, _MOST_DYNAMIC_BYTES))
            pair = order + ("qQ" if is_64 else "iI")
            end = len(content) - len(content) % struct.calcsize(pair)
            dynamic = list(struct.iter_unpack(pair, content[:end]))
    strings = _strings(opened, dynamic, headers)
    libraries = tuple(_text(strings, value) for tag, value in dynamic if tag == _NEEDED)
    paths = [_text(strings, value) for tag, value in dynamic if tag in (_RPATH, _RUNPATH)]
    search = tuple(
        part.replace("${ORIGIN}", folder).replace("$ORIGIN", folder)
        for path in paths
        for part in path.split(":")
        if part
    )
    return Needs(kind, libraries, search, loader)


def _header(table: bytes, at: int, is_64: bool, order: str) -> tuple[int, int, int, int]:
    """(type, offset in the file, address in memory, size in the file) of a segment."""
    if is_64:
        type, _, offset, address, _, size = struct.unpack_from(order + "IIQQQQ", table, at)
    else:
        type, offset, address, _, size = struct.unpack_from(order + "IIIII", table, at)
    return type, offset, address, size


def _strings(
    opened: IO[bytes], dynamic: list[tuple[int, int]], headers: list[tuple[int, int, int, int]]
) -> bytes:
    """The dynamic section's string table, whose address is one in memory."""
    values = dict(dynamic)
    address = values.get(_STRING_TABLE)
    if address is None:
        return b""
    for type, offset, start, length in headers:
        if type == _LOAD and start <= address < start + length:
            opened.seek(offset + address - start)
            return opened.read(min(values.get(_STRING_SIZE, 0), _MOST_STRING_BYTES))
    return b""


def _text(strings: bytes, at: int) -> str:
    return os.fsdecode(strings[at : strings.index(b"\0", at)])
