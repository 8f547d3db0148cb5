"""`yard compute check`: can the nodes of a cluster train together, and how fast do they talk?

Owns: the job that finds out, the page of its answers, the exit code.
Leaves: finding out to the workers' preflight and to ring.py, which runs as the job's script.
Always: it is a job like any other, in the list as one of torchyard's own, and holds the nodes as
long as it runs; 0 when nothing is wrong with them, else 1.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, named
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.job import Job

EXPERIMENT = "compute-checks"
_LOOK_EVERY_S = 0.2
_LIMIT_S = 600
# Sent as a file, never imported: it is the worker's world.
_PROGRAM = Path(__file__).resolve().parents[2] / "worker" / "preflight" / "bandwidth.py"
_MARK = "torchyard-check "
_GIB, _MIB = 1 << 30, 1 << 20


@click.command("check", cls=Verb)
@named("compute", "computes")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=None,
    help="How many; all that it may have when left out.",
)
@click.option(
    "--environment",
    default="",
    metavar="NAME",
    help="As in a job file; its torch is compared and measured, too.",
)
@click.option(
    "--size-mb",
    type=click.IntRange(1, 4096),
    metavar="MIB",
    default=64,
    show_default=True,
    help="Of what is reduced between the nodes, in MiB.",
)
@common
def check(session: Session, name: str, nodes: int | None, environment: str, size_mb: int) -> int:
    """Check the nodes of a cluster as before a distributed job, and measure their network.

    Example: yard compute check -n gpu-cluster --nodes 2
    """
    client = session.client()
    most = client.computes.get(name).max_instances
    count = nodes or most
    if count > most:
        raise InvalidInput(
            f"compute `{name}` has {most} nodes at the most, not {count}",
            f"write `--nodes {most}`, or raise it: `yard compute update -n {name} "
            f"--max-instances {count}`",
        )
    job = client.jobs.create(_document(name, count, environment, size_mb))
    people = session.form.kind == "table"
    try:
        ended = _wait(job, people)
    except KeyboardInterrupt:
        job.cancel()
        raise
    found = _answer(client, name, ended)
    tables.one(session.form, found, lambda: _page(found))
    return 0 if found["ok"] else 1


def _document(compute: str, nodes: int, environment: str, size_mb: int) -> dict[str, Any]:
    with_torch = " --torch" if environment else ""
    return {
        "command": f"python {_PROGRAM.name} --mb {size_mb}{with_torch}",
        "code": str(_PROGRAM),
        "environment": environment or "python",
        "compute": compute,
        "experiment_name": EXPERIMENT,
        "display_name": f"check of compute {compute}",
        "description": "made by `yard compute check`",
        "tags": {"torchyard": "compute check"},
        "properties": {"torchyard.preflight": "always"},
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": nodes},
        "limits": {"timeout": _LIMIT_S},
    }


def _wait(job: Job, people: bool) -> Job:
    """The job, once it has ended; what it waits for is said on the way."""
    said = ""
    while True:
        job = job.refresh()
        if job.has_ended:
            return job
        text = f"{job.status}: {job.waiting}".rstrip(": ")
        if people and text != said:
            click.echo(f"Job `{job.name}`: {text}", err=True)
        said = text
        time.sleep(_LOOK_EVERY_S)


def _answer(client: Client, compute: str, job: Job) -> dict[str, Any]:
    nodes = client.jobs.preflight(job.name).raw
    error = job.raw.get("error")
    findings = _distinct(nodes)
    return {
        "compute": compute,
        "job": job.name,
        "ok": job.status == "Completed",
        "nodes": nodes,
        "findings": findings,
        "bandwidth": _figures(job),
        "error": None if error is None or _is_told(error, findings) else dict(error),
    }


def _distinct(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every finding once, although all nodes see what is wrong with one; errors first."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        for finding in node.get("findings") or []:
            found.setdefault(finding["message"], dict(finding))
    return sorted(found.values(), key=lambda one: one["severity"] != "error")


def _is_told(error: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> bool:
    return any(error.get("code") == finding["code"] for finding in findings)


def _figures(job: Job) -> list[dict[str, Any]]:
    """What rank 0 measured."""
    try:
        text = job.logs(rank=0)
    except NotFound:
        return []
    lines = [line for line in text.splitlines() if line.startswith(_MARK)]
    return [json.loads(line.removeprefix(_MARK)) for line in lines]


_COLUMNS: list[tables.Column] = [
    ("NODE", lambda node: node["node"]),
    ("ADDRESS", lambda node: node["address"]),
    ("HOST", lambda node: node["facts"].get("host")),
    ("INTERFACES", lambda node: _interfaces(node["facts"])),
    ("GPUS", lambda node: len(node["facts"].get("devices") or [])),
    ("TORCH", lambda node: node["facts"].get("torch") or "-"),
    ("DISK", lambda node: _size(node["facts"].get("disk_free_bytes"))),
    ("SHM", lambda node: _size(node["facts"].get("shm_free_bytes"))),
    ("MEMORY", lambda node: _size(node["facts"].get("memory_free_bytes"))),
    ("CLOCK", lambda node: _clock(node)),
    ("PORTS", lambda node: _ports(node)),
]


def _page(found: Mapping[str, Any]) -> str:
    parts = [tables.table_text(found["nodes"], _COLUMNS)] if found["nodes"] else []
    parts += ["\n".join(_finding(one) for one in found["findings"])] if found["findings"] else []
    if found["bandwidth"]:
        parts.append("\n".join(_figure(one) for one in found["bandwidth"]))
    if found["error"]:
        parts.append(_finding({**found["error"], "severity": "error"}))
    verdict = "can train together" if found["ok"] else "can't train together as they are"
    parts.append(f"The nodes of `{found['compute']}` {verdict}; job `{found['job']}`.")
    return "\n\n".join(parts)


def _finding(one: Mapping[str, Any]) -> str:
    colour = "red" if one["severity"] == "error" else "yellow"
    lines = [click.style(f"{one['severity']}:", fg=colour, bold=True) + f" {one['message']}"]
    if one.get("hint"):
        lines.append(click.style("hint:", fg="yellow", bold=True) + f" {one['hint']}")
    return "\n".join(lines)


def _figure(one: Mapping[str, Any]) -> str:
    rate = one["bus_bytes_per_s"]
    size = f"{one['size_bytes'] / _MIB:.0f} MiB"
    return (
        f"All-reduce of {size} over {one['nodes']} nodes ({one['name']}): "
        f"{one['best_s'] * 1000:.1f} ms; each sends {rate / 1e9:.2f} GB/s ({rate * 8 / 1e9:.1f} "
        "Gbit/s)"
    )


def _interfaces(facts: Mapping[str, Any]) -> str:
    """By name, the one that others are reached by with its MTU."""
    shown = []
    for name, addresses in (facts.get("interfaces") or {}).items():
        own = facts.get("address") in addresses
        shown.append(f"{name} (mtu {facts['mtu']})" if own else name)
    return ", ".join(sorted(shown, key=lambda text: "(" not in text))


def _size(size_bytes: int | None) -> str:
    if size_bytes is None or size_bytes < 0:
        return "?"
    if size_bytes < _GIB:
        return f"{size_bytes // _MIB} MiB"
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes < 10 * _GIB else f"{size_bytes >> 30} GiB"


def _clock(node: Mapping[str, Any]) -> str:
    apart_s = node.get("apart_s")
    if apart_s is None:
        return "of node 0" if node["node"] == 0 else "?"
    return f"{apart_s:+.1f} s" if abs(apart_s) >= 1 else f"{apart_s * 1000:+.1f} ms"


def _ports(node: Mapping[str, Any]) -> str:
    ways = node.get("ways")
    if ways is None:
        return "?"
    shut = [way for way in ways if way.get("error")]
    return f"{len(shut)} of {len(ways)} shut" if shut else "open" if ways else "-"
