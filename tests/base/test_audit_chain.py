"""What the chain of hashes shows, and what only a copy shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from torchyard.base import audit_chain
from torchyard.base.audit_chain import Link

Lines = list[bytes]


def _written(folder: Path, per_day: int = 4, server: str = "box") -> list[Path]:
    """Two days of one server's lines."""
    folder.mkdir(exist_ok=True)
    link, files = Link(), []
    for day in ("2026-11-01", "2026-11-02"):
        file = folder / f"{day}.{server}.jsonl"
        lines = []
        for number in range(per_day):
            line = {"at": f"{day}T0{number}:00:00Z", "user": "dän", "path": f"/{number}"}
            text, link = audit_chain.seal(line, server, link)
            lines.append(text)
        file.write_bytes(b"\n".join(lines) + b"\n")
        files.append(file)
    return files


def _change(lines: Lines) -> Lines:
    return [lines[0], lines[1].replace("dän".encode(), b"eve"), *lines[2:]]


def _resealed(lines: Lines) -> Lines:
    """Changed by somebody who knows the format, but leaves the rest of the chain."""
    line = json.loads(lines[1])
    before = Link(line["seq"] - 1, line["prev"])
    fields = {key: line[key] for key in line if key not in ("server", "seq", "prev", "hash")}
    return [lines[0], audit_chain.seal({**fields, "user": "eve"}, "box", before)[0], *lines[2:]]


def _with_plain_line(lines: Lines) -> Lines:
    return [*lines[:2], b'{"at": "2026-11-01T01:30:00Z", "user": "eve"}', *lines[2:]]


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (_change, 2, "it was changed"),
        (_resealed, 3, "it does not follow line 2"),
        (lambda lines: lines[:1] + lines[2:], 2, "lines 2 to 2 are missing"),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2, "lines 2 to 2 are missing"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3, "it does not follow line 2"),
        (_with_plain_line, 3, "it has no hash"),
    ],
)
def test_the_first_broken_line_is_named(
    tmp_path: Path, change: Callable[[Lines], Lines], line: int, reason: str
) -> None:
    first, _ = _written(tmp_path)
    first.write_bytes(b"\n".join(change(first.read_bytes().splitlines())) + b"\n")
    (chain,) = audit_chain.verify(tmp_path)
    assert chain.broken is not None
    assert (chain.broken.file, chain.broken.line) == (first.name, line)
    assert chain.broken.reason.startswith(reason)


def test_a_whole_chain_goes_over_days(tmp_path: Path) -> None:
    _, second = _written(tmp_path)
    (chain,) = audit_chain.verify(tmp_path)
    assert (chain.broken, chain.lines, chain.files) == (None, 8, 2)
    assert chain.last == audit_chain.tail([second])


def test_a_missing_day_is_a_break(tmp_path: Path) -> None:
    _, second = _written(tmp_path)
    text, link = audit_chain.seal({"at": "2026-11-03"}, "box", audit_chain.tail([second]))
    (tmp_path / "2026-11-03.box.jsonl").write_bytes(text + b"\n")
    second.unlink()
    (chain,) = audit_chain.verify(tmp_path)
    assert chain.broken is not None and link.seq == 9
    assert chain.broken.reason == "lines 5 to 8 are missing before it"


def test_the_oldest_days_may_be_gone(tmp_path: Path) -> None:
    first, _ = _written(tmp_path)
    first.unlink()
    (chain,) = audit_chain.verify(tmp_path)
    assert (chain.broken, chain.lines) == (None, 4)


def test_lines_from_before_the_chain_are_counted(tmp_path: Path) -> None:
    first, _ = _written(tmp_path)
    old = b'{"at": "2026-11-01T00:00:00Z", "path": "/old"}\n'
    first.write_bytes(old + first.read_bytes())
    (chain,) = audit_chain.verify(tmp_path)
    assert (chain.broken, chain.unsealed, chain.lines) == (None, 1, 8)


def test_half_a_line_of_a_full_disk_is_no_break(tmp_path: Path) -> None:
    first, _ = _written(tmp_path)
    lines = first.read_bytes().splitlines()
    first.write_bytes(b"\n".join([*lines[:2], lines[2][:40], *lines[2:]]) + b"\n")
    (chain,) = audit_chain.verify(tmp_path)
    assert (chain.broken, chain.incomplete) == (None, 1)


def test_each_server_has_its_chain(tmp_path: Path) -> None:
    _written(tmp_path, server="box-a")
    files = _written(tmp_path, server="box-b")
    moved = files[0].read_bytes()
    chains = audit_chain.verify(tmp_path)
    assert [(chain.server, chain.broken) for chain in chains] == [("box-a", None), ("box-b", None)]
    (tmp_path / "2026-11-01.box-a.jsonl").write_bytes(moved)
    broken = audit_chain.verify(tmp_path)[0].broken
    assert broken is not None and broken.reason == "it belongs to the server `box-b`"


def test_only_a_copy_shows_that_the_end_was_cut_off(tmp_path: Path) -> None:
    _, second = _written(tmp_path / "audit")
    copy = tmp_path / "messages"
    head = b"Nov  2 00:00:00 box torchyard-audit[7]: "
    lines = [line for file in sorted((tmp_path / "audit").iterdir()) for line in _of(file)]
    # Syslog has other lines, too, and was started later than the server.
    copy.write_bytes(b"\n".join([b"kernel: {odd}", *(head + line for line in lines[2:])]) + b"\n")
    comparison = audit_chain.compare(audit_chain.verify(tmp_path / "audit"), copy)
    assert (comparison.lines, comparison.changed, comparison.uncopied) == (6, (), 0)
    second.write_bytes(b"\n".join(_of(second)[:2]) + b"\n")
    chains = audit_chain.verify(tmp_path / "audit")
    assert chains[0].broken is None
    cut = audit_chain.compare(chains, copy)
    assert cut.changed == (
        "line 7 of `box` (line 6 of the copy)", "line 8 of `box` (line 7 of the copy)"
    )  # fmt: skip


def test_a_chain_that_was_written_again_does_not_fit_the_copy(tmp_path: Path) -> None:
    files = _written(tmp_path / "audit")
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"".join(file.read_bytes() for file in files))
    link = Link()
    for file in files:
        rewritten = []
        for text in _of(file):
            line = json.loads(text)
            for key in ("server", "seq", "prev", "hash"):
                del line[key]
            sealed, link = audit_chain.seal({**line, "user": "eve"}, "box", link)
            rewritten.append(sealed)
        file.write_bytes(b"\n".join(rewritten) + b"\n")
    chains = audit_chain.verify(tmp_path / "audit")
    assert chains[0].broken is None
    assert len(audit_chain.compare(chains, copy).changed) == 8


def test_lines_that_the_sink_missed_are_counted(tmp_path: Path) -> None:
    files = _written(tmp_path / "audit")
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(files[1].read_bytes().replace(_of(files[1])[2] + b"\n", b""))
    compared = audit_chain.compare(audit_chain.verify(tmp_path / "audit"), copy)
    assert (compared.changed, compared.uncopied) == ((), 1)


def _of(file: Path) -> Lines:
    return file.read_bytes().splitlines()
