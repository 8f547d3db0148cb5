"""`yard audit`: who did what, when, from where and with which outcome; and whether that is all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torchyard.base import audit_chain
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.cli.parsing import amounts
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common
from torchyard.cli.terminal import tables

_COLUMNS: list[tables.Column] = [
    ("WHEN", lambda line: tables.moment(line["at"])),
    ("WHO", lambda line: _who(line)),
    ("OUTCOME", lambda line: line["outcome"]),
    ("REQUEST", lambda line: f"{line['method']} {line['path']}"),
    ("FROM", lambda line: line["from"]),
    ("DETAILS", lambda line: _about(line)),
]


@click.command("audit", cls=Verb)
@click.option("--user", default="", metavar="NAME", help="List only this user's requests.")
@click.option("--since", default="", metavar="TIME", help="Start: `2h` or `7d` ago, or a date.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    metavar="COUNT",
    show_default=True,
    help="Number of entries, newest first.",
)
@click.option("--here", is_flag=True, help="List only this workspace's entries; its owners may.")
@click.option(
    "--verify",
    is_flag=True,
    help="Check the chain of hashes in this machine's home folder; the exit code is 1 if it is "
    "broken.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="With --verify: compare with the copy that the server's audit sink has kept.",
)
@common
def audit(
    session: Session,
    user: str,
    since: str,
    limit: int,
    here: bool,
    verify: bool,
    against: Path | None,
) -> int:
    """List who changed what and whose requests were refused, newest first; for owners.

    \b
    Example: yard audit --user anna --since 7d
             yard audit --here -w vision -o json
             yard audit --verify --against /var/log/torchyard-audit.log
    """
    if verify:
        return _verify(session, against)
    if against is not None:
        raise InvalidInput("`--against` needs `--verify`", "add `--verify`")
    start = amounts.earlier(since) if since else ""
    lines = session.client().users.audit(user, start, limit, everywhere=not here)
    tables.rows(session.form, lines.raw, _COLUMNS)
    return 0


def _verify(session: Session, against: Path | None) -> int:
    """Read the files themselves: a server that was taken over would say what it likes."""
    folder = session.settings.home / "audit"
    if not folder.is_dir():
        raise NotFound(
            f"there is no audit log at `{folder}`",
            "run this on the server's machine, with TORCHYARD_HOME set to its home folder",
        )
    try:
        chains = audit_chain.verify(folder)
        copied = audit_chain.compare(chains, against) if against is not None else None
    except OSError as error:
        raise InvalidInput(
            f"`{error.filename}` can't be read ({error.strerror})",
            "run this as root, or as a user who may read it",
        ) from error
    is_whole = all(chain.broken is None for chain in chains)
    is_whole = is_whole and (copied is None or not copied.changed)
    body: dict[str, Any] = {
        "status": "whole" if is_whole else "broken",
        "servers": [_chain(chain) for chain in chains],
    }
    if copied is not None:
        body["copy"] = {
            "lines": copied.lines, "changed": list(copied.changed), "uncopied": copied.uncopied
        }  # fmt: skip
    tables.one(session.form, body, lambda: _report(chains, copied))
    return 0 if is_whole else 1


def _chain(chain: audit_chain.Chain) -> dict[str, Any]:
    broken = chain.broken
    return {
        "server": chain.server,
        "lines": chain.lines,
        "from": chain.first_at,
        "to": chain.last_at,
        "hash": chain.last.hash,
        "unsealed": chain.unsealed,
        "incomplete": chain.incomplete,
        "broken": broken and {"file": broken.file, "line": broken.line, "reason": broken.reason},
    }


def _report(chains: list[audit_chain.Chain], copied: audit_chain.Comparison | None) -> str:
    lines = []
    for chain in chains:
        ends = f"{tables.moment(chain.first_at)} to {tables.moment(chain.last_at)}"
        lines.append(f"{chain.server}: {chain.lines:,} lines, {ends}, last {chain.last.hash[:16]}")
        if chain.broken is not None:
            broken = chain.broken
            lines.append(f"  BROKEN at line {broken.line} of {broken.file}: {broken.reason}")
        if chain.unsealed:
            lines.append(f"  {chain.unsealed:,} lines are older than the chain")
        if chain.incomplete:
            lines.append(f"  {chain.incomplete:,} lines are incomplete: the disk was full")
    if copied is not None:
        lines.append(f"The copy has {copied.lines:,} lines.")
        lines += [f"  CHANGED OR REMOVED: {which}" for which in copied.changed[:20]]
        if len(copied.changed) > 20:
            lines.append(f"  … and {len(copied.changed) - 20:,} more")
        if copied.uncopied:
            lines.append(f"  {copied.uncopied:,} lines of the log are not in it")
    else:
        lines.append("Lines cut off at the end show only with `--against` a copy.")
    return "\n".join(lines)


def _who(line: dict[str, Any]) -> str:
    name = line.get("user") or "(nobody)"
    return f"{name}, by job {line['job']}" if line.get("job") else name


def _about(line: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in (line.get("about") or {}).items())
