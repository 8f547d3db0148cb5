"""The chain of hashes in the audit log: sealing a line, and checking what is there.

Owns: what a sealed line looks like, verification of a folder of them and against a copy.
Leaves: writing the lines to workspaces/audit.py, sending copies to workspaces/audit_sink.py.
Always: every sealed line names its server, its number and the hash of the line before it, and ends
with its own hash; the chain goes on from one day's file to the next.

Anyone who can write the files can also write a whole new chain, or cut off its end: only a copy
that another user keeps shows that.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATTERN = "????-??-??.*.jsonl"
_SEAL = b', "hash": "'
_SEALED = re.compile(rb', "hash": "([0-9a-f]{64})"\}$')
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True)
class Link:
    """Where a chain has got to; `seq` is 0 before its first line."""

    seq: int = 0
    hash: str = ""


@dataclass(frozen=True)
class Break:
    """The first line of a chain that is not what was written there."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class Chain:
    """What one server's files hold.

    Args:
        unsealed: lines in front of the chain, from before there was one.
        incomplete: half lines, written when the disk was full.
        hashes: by number; empty where the line is not what was written.
    """

    server: str
    files: int
    lines: int
    first_at: str
    last_at: str
    last: Link
    unsealed: int
    incomplete: int
    broken: Break | None
    hashes: Mapping[int, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Comparison:
    """A copy beside the chains.

    Args:
        lines: sealed lines in the copy.
        changed: lines of the copy that the chains do not have, or have otherwise.
        uncopied: lines of the chains that the copy lacks, from its first line on.
    """

    lines: int
    changed: tuple[str, ...]
    uncopied: int


def seal(line: Mapping[str, Any], server: str, before: Link) -> tuple[bytes, Link]:
    """The line as text, with its place in the chain, without a newline."""
    chained = {**line, "server": server, "seq": before.seq + 1, "prev": before.hash}
    body = json.dumps(chained, ensure_ascii=False).encode("utf-8", "backslashreplace")[:-1]
    own_hash = _hash(body)
    return body + _SEAL + own_hash.encode() + b'"}', Link(before.seq + 1, own_hash)


def tail(files: Iterable[Path]) -> Link:
    """The last sealed line of the newest of one server's files that has any.

    Args:
        files: newest first.
    """
    for file in files:
        with open(file, "rb") as opened:
            opened.seek(max(0, opened.seek(0, 2) - _TAIL_BYTES))
            for text in reversed(opened.read().splitlines()):
                line = _read(text)
                if line is not None and line.is_sealed:
                    return Link(line.seq, line.hash)
    return Link()


def verify(folder: Path) -> list[Chain]:
    """Check every chain in the folder `audit/` of a home; one for each server.

    Raises:
        OSError: a file can't be read.
    """
    by_server: dict[str, list[Path]] = {}
    for file in sorted(folder.glob(PATTERN)):
        by_server.setdefault(file.name[11 : -len(".jsonl")], []).append(file)
    return [_Verifier(server).chain(files) for server, files in sorted(by_server.items())]


def compare(chains: Iterable[Chain], copy: Path) -> Comparison:
    """Hold the chains against a copy that a sink has kept: JSON lines, or those of syslog.

    Raises:
        OSError: the copy can't be read.
    """
    hashes = {chain.server: chain.hashes for chain in chains}
    copied: dict[str, set[int]] = {}
    changed = []
    count = 0
    with open(copy, "rb") as opened:
        for number, text in enumerate(opened, 1):
            line = _read(text[text.find(b"{") :].rstrip()) if b"{" in text else None
            if line is None or not line.is_sealed:
                continue
            count += 1
            copied.setdefault(line.server, set()).add(line.seq)
            if hashes.get(line.server, {}).get(line.seq) != line.hash:
                changed.append(f"line {line.seq} of `{line.server}` (line {number} of the copy)")
    uncopied = sum(
        1
        for server, seqs in copied.items()
        for seq in hashes.get(server, {})
        if seq >= min(seqs) and seq not in seqs
    )
    return Comparison(count, tuple(changed), uncopied)


@dataclass(frozen=True)
class _Line:
    """A line as it was read; `hash` is what its text comes to, `claimed` what it says itself."""

    at: str
    server: str
    seq: int
    prev: str
    hash: str
    claimed: str

    @property
    def is_sealed(self) -> bool:
        return bool(self.claimed) and self.claimed == self.hash


class _Verifier:
    """Goes through one server's files, oldest first."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._last: Link | None = None
        self._broken: Break | None = None
        self._unsealed = self._incomplete = self._lines = 0
        self._at: list[str] = []
        self._hashes: dict[int, str] = {}

    def chain(self, files: list[Path]) -> Chain:
        for file in files:
            for number, text in _numbered(file):
                self._see(file, number, text)
        return Chain(
            self._server,
            len(files),
            self._lines,
            self._at[0] if self._at else "",
            self._at[-1] if self._at else "",
            self._last or Link(),
            self._unsealed,
            self._incomplete,
            self._broken,
            self._hashes,
        )

    def _see(self, file: Path, number: int, text: bytes) -> None:
        line = _read(text)
        if line is None:
            self._incomplete += 1
            return
        if self._last is None and not line.claimed:
            self._unsealed += 1
            return
        reason = self._fault(line)
        if reason and self._broken is None:
            self._broken = Break(file.name, number, reason)
        if not line.is_sealed:
            return
        self._lines += 1
        self._at.append(line.at)
        self._hashes.setdefault(line.seq, line.hash)
        self._last = Link(line.seq, line.hash)

    def _fault(self, line: _Line) -> str:
        if not line.claimed:
            return "it has no hash"
        if not line.is_sealed:
            return "it was changed: its hash does not fit its text"
        if line.server != self._server:
            return f"it belongs to the server `{line.server[:80]}`"
        last = self._last
        # The files before the first one may be older than what is kept.
        if last is None or (line.seq == last.seq + 1 and line.prev == last.hash):
            return ""
        if line.seq > last.seq + 1:
            return f"lines {last.seq + 1} to {line.seq - 1} are missing before it"
        return f"it does not follow line {last.seq}: lines were exchanged, repeated or replaced"


def _numbered(file: Path) -> Iterator[tuple[int, bytes]]:
    with open(file, "rb") as opened:
        for number, text in enumerate(opened, 1):
            if text.strip():
                yield number, text.rstrip(b"\n")


def _read(text: bytes) -> _Line | None:
    """None for what is not a JSON object, as half a line."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict):
        return None
    seal_match = _SEALED.search(text)
    seq = line.get("seq")
    return _Line(
        str(line.get("at", "")),
        str(line.get("server", "")),
        seq if type(seq) is int else 0,
        str(line.get("prev", "")),
        _hash(text[: seal_match.start()]) if seal_match else "",
        seal_match[1].decode() if seal_match else "",
    )


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
