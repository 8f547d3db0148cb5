"""`yard compute check`: can a cluster's nodes train together?

Owns: the job that checks, its report, the exit code.
Leaves: checking to the workers' preflight.
Always: it is a job like any other, tagged as torchyard's; it takes nodes that are free, every other
job comes before it, and it ends with the command, however that ends; the exit code is 0 if it finds
no error, else 1.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.terminal_text import coloured, plain
from torchyard.cli.compute import canceler
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, name_argument, warn
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.computes import ComputeEngine
    from torchyard.client.job import Job

EXPERIMENT = "compute-checks"
_POLL_S = 0.2
_LIMIT_S = 600
_FREE = "idle"
_GIB, _MIB = 1 << 30, 1 << 20


@click.command("check", cls=Verb)
@name_argument("compute", "computes")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=None,
    help="Number of nodes. Default: those that are free now.",
)
@click.option(
    "--environment",
    default="",
    metavar="NAME",
    help="Environment to run in, as in a job file; its torch is compared, too.",
)
@click.option("--engine-only", is_flag=True, help="Ask the engine alone; run no job.")
@common
def check(
    session: Session, name: str, nodes: int | None, environment: str, engine_only: bool
) -> int:
    """Check a cluster's free nodes as before a distributed job.

    The check gives its nodes to any other job that needs them, and ends with the command. Another
    engine than `local` is first asked whether it answers, which version it has, and whether
    its nodes can reach the server.

    Example: yard compute check -n gpu-cluster --nodes 2
    """
    client = session.client()
    compute = client.computes.get(name)
    limit = compute.max_instances
    if compute.engine not in ("", "local") or engine_only:
        view = client.computes.engine(name)
        for notice in view.notices:
            warn(notice)
        if engine_only:
            tables.one(session.form, view.raw, lambda: _engine_page(name, view))
            return 0
        if session.form.kind == "table":
            click.echo(coloured(_engine_page(name, view)), err=True)
        free = sum(machine.state == _FREE for machine in view.machines)
    else:
        states = [node.state for node in client.computes.nodes(name).nodes]
        free = limit - sum(state != _FREE for state in states)
    count = nodes or min(limit, free)
    if count < 1:
        raise Conflict(
            f"compute `{name}` has no free node: a check would wait for the jobs there",
            f"see them with `yard compute list-nodes {name}`; `--nodes COUNT` waits",
            code="no_free_node",
        )
    if count > limit:
        raise InvalidInput(
            f"compute `{name}` has at most {limit} nodes, not {count}",
            f"use `--nodes {limit}`, or raise the maximum: `yard compute update -n {name} "
            f"--max-instances {count}`",
        )
    document = _document(name, count, environment)
    people = session.form.kind == "table"
    path = f"/v1/workspaces/{quote(client.workspace, safe='')}/jobs/{document['name']}"
    with canceler.canceled_with_this_process(client.transport, path):
        ended = _wait(client.jobs.create(document), people)
    report = _answer(client, name, ended)
    tables.one(session.form, report, lambda: _page(report))
    return 0 if report["ok"] else 1


def _engine_page(name: str, view: ComputeEngine) -> str:
    version = f"{view.engine} {view.version}".strip()
    python = f", Python {view.python}" if view.python else ""
    states: dict[str, int] = {}
    for machine in view.machines:
        states[machine.state] = states.get(machine.state, 0) + 1
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    urls = f"; nodes reach the server at {', '.join(view.server_urls)}" if view.server_urls else ""
    return f"`{name}`: {version}{python}; machines: {counted}{urls}."


def _document(compute: str, nodes: int, environment: str) -> dict[str, Any]:
    return {
        "name": f"check-{secrets.token_hex(6)}",
        # The checks come before it.
        "command": "true",
        "environment": environment or "python",
        "compute": compute,
        "experiment_name": EXPERIMENT,
        "display_name": f"check of compute {compute}",
        "description": "made by `yard compute check`",
        "tags": {"torchyard": "compute check"},
        "properties": {"torchyard.preflight": "always"},
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": nodes},
        # Whatever else is submitted comes before it, also when it has begun.
        "queue_settings": {"job_tier": "spot", "priority": "low"},
        "limits": {"timeout": _LIMIT_S},
    }


def _wait(job: Job, people: bool) -> Job:
    """The job once it has ended; prints meanwhile what it waits for."""
    last_text = ""
    while True:
        job = job.refresh()
        if job.has_ended:
            return job
        text = f"{job.status}: {job.waiting}".rstrip(": ")
        if people and text != last_text:
            click.echo(f"Job `{job.name}`: {plain(text)}", err=True)
        last_text = text
        time.sleep(_POLL_S)


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
        "error": None if error is None or _is_among(error, findings) else dict(error),
    }


def _distinct(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each finding once, although every node may report it; errors first."""
    findings: dict[str, dict[str, Any]] = {}
    for node in nodes:
        for finding in node.get("findings") or []:
            findings.setdefault(finding["message"], dict(finding))
    return sorted(findings.values(), key=lambda finding: finding["severity"] != "error")


def _is_among(error: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> bool:
    return any(error.get("code") == finding["code"] for finding in findings)


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


def _page(report: Mapping[str, Any]) -> str:
    parts = [tables.table_text(report["nodes"], _COLUMNS)] if report["nodes"] else []
    parts += (
        ["\n".join(_finding(item) for item in report["findings"])] if report["findings"] else []
    )
    if report["error"]:
        parts.append(_finding({**report["error"], "severity": "error"}))
    conclusion = "can train together" if report["ok"] else "can't train together as they are"
    parts.append(f"The nodes of `{report['compute']}` {conclusion}; job `{report['job']}`.")
    return "\n\n".join(parts)


def _finding(finding: Mapping[str, Any]) -> str:
    colour = "red" if finding["severity"] == "error" else "yellow"
    lines = [
        click.style(f"{finding['severity']}:", fg=colour, bold=True) + f" {finding['message']}"
    ]
    if finding.get("hint"):
        lines.append(click.style("hint:", fg="yellow", bold=True) + f" {finding['hint']}")
    return "\n".join(lines)


def _interfaces(facts: Mapping[str, Any]) -> str:
    """Interfaces by name; the one that other nodes reach has its MTU."""
    shown = []
    for name, addresses in (facts.get("interfaces") or {}).items():
        is_reachable = facts.get("address") in addresses
        shown.append(f"{name} (mtu {facts['mtu']})" if is_reachable else name)
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
    return f"{len(shut)} of {len(ways)} closed" if shut else "open" if ways else "-"
