"""`yard compute …`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.cli.commands import compute_check
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    at_most,
    common,
    confirm,
    filed,
    many,
    named,
    tagged,
    warn,
)
from torchyard.cli.terminal import tables

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.computes import Compute, DayOfUse

group = noun("compute")
group.add_command(compute_check.check)

Command = TypeVar("Command", bound=Callable[..., Any])

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda compute: compute["name"]),
    ("TYPE", lambda compute: compute.get("type")),
    ("SIZE", lambda compute: compute.get("size")),
    ("MIN", lambda compute: compute.get("min_instances")),
    ("MAX", lambda compute: compute.get("max_instances")),
    ("NODES", lambda compute: compute.get("current_node_count")),
    ("BUSY", lambda compute: _busy(compute)),
    ("STATE", lambda compute: _state(compute)),
]
_NODE_COLUMNS: list[tables.Column] = [
    ("NODE", lambda node: node["name"]),
    ("STATE", lambda node: node["state"]),
    ("SINCE", lambda node: tables.moment(node["since"])),
    ("JOB", lambda node: node["job"]),
    ("OF", lambda node: node["owner"]),
    ("RANK", lambda node: node["rank"]),
    ("GPUS", lambda node: " ".join(str(device["index"]) for device in node["devices"])),
]
_WAITING_COLUMNS: list[tables.Column] = [
    ("WAITING JOB", lambda job: job["job"]),
    ("OF", lambda job: job["owner"]),
    ("NODES", lambda job: job["node_count"]),
    ("SINCE", lambda job: tables.moment(job["since"])),
    ("WHY", lambda job: job["why"] or "the next look at the queue takes it"),
]
_SIZE_COLUMNS: list[tables.Column] = [
    ("SIZE", lambda size: size["name"]),
    ("CORES", lambda size: size["cores"]),
    ("GIB", lambda size: f"{size['memory_bytes'] / 2**30:g}"),
    ("GPUS", lambda size: size["gpus"] or ""),
    ("KIND", lambda size: size["gpu_kind"]),
    ("FIT HERE", lambda size: size["fits"]),
]


def _sized(command: Command) -> Command:
    """What a cluster can be given on the command line."""
    for option in reversed(_SIZE_OPTIONS):
        command = option(command)
    return command


_SIZE_OPTIONS = (
    click.option("--min-instances", type=int, default=None, help="Nodes kept when idle."),
    click.option("--max-instances", type=int, default=None, help="Nodes at most."),
    click.option(
        "--idle-time-before-scale-down",
        type=int,
        default=None,
        metavar="SECONDS",
        help="In seconds.",
    ),
    click.option("--tier", default=None, help="dedicated or low_priority."),
    click.option("--description", default=None, help="In your words."),
    click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags."),
    accepts("--no-wait"),
)


@group.command("create")
@click.option("-n", "--name", default=None, help="The compute's name.")
@click.option("-t", "--type", "kind", default=None, help="amlcompute.")
@click.option("-s", "--size", default=None, help="The size of a node, as STANDARD_D2_V2.")
@accepts("--location")
@click.option("--engine", default=None, help="What the nodes are: local, the server's machine.")
@_sized
@common
@filed("compute")
def create(
    session: Session,
    document: Document,
    kind: str | None,
    tags: tuple[str, ...],
    **given: Any,
) -> None:
    """Create a cluster, or change one.

    Example: yard compute create -n cpu-cluster --type amlcompute --size STANDARD_D2_V2
    --max-instances 4
    """
    document.fill({"type": kind, "tags": tagged(tags), **given})
    try:
        found = session.client().computes.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, found)


@group.command("update")
@named("compute", "computes")
@_sized
@common
@filed("compute")
def update(
    session: Session, document: Document, name: str, tags: tuple[str, ...], **given: Any
) -> None:
    """Change a cluster; what is not given stays as it is.

    Example: yard compute update -n cpu-cluster --max-instances 8
    """
    document.fill({"tags": tagged(tags), **given})
    if not document.value:
        raise InvalidInput("nothing is to be changed", "write `--max-instances 4`, or `--set a=b`")
    try:
        found = session.client().computes.update(name, document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, found)


@group.command("list")
@click.option("-t", "--type", "kind", default="", help="Only this type.")
@many
@common
def list_computes(session: Session, kind: str, max_results: int | None) -> None:
    """List clusters.

    Example: yard compute list
    """
    found = session.client().computes.list()
    wanted = kind.lower()
    kept = [row.raw for row in found if not wanted or row.type.lower() == wanted]
    tables.rows(session.form, at_most(kept, "no", max_results), _COLUMNS)


@group.command("show")
@named("compute", "computes")
@common
def show(session: Session, name: str) -> None:
    """Show one cluster.

    Example: yard compute show -n cpu-cluster
    """
    _show(session, session.client().computes.get(name))


@group.command("list-nodes")
@named("compute", "computes")
@common
def list_nodes(session: Session, name: str) -> None:
    """List the nodes of a cluster, and what runs on them.

    Example: yard compute list-nodes -n cpu-cluster
    """
    tables.rows(session.form, session.client().computes.nodes(name).nodes.raw, _NODE_COLUMNS)


@group.command("sizes")
@click.option("-s", "--search", default="", metavar="TEXT", help="Only names with this in them.")
@accepts("--location")
@common
def sizes(session: Session, search: str) -> None:
    """List the sizes that a node can have, and how many of each this machine holds.

    Example: yard compute sizes --search NC
    """
    found = session.client().computes.sizes()
    wanted = search.lower()
    rows = [size.raw for size in found if wanted in size.name.lower()]
    tables.rows(session.form, rows, _SIZE_COLUMNS)


# As `az ml compute` calls it.
group.add_command(sizes, "list-sizes")


@group.command("delete")
@named("compute", "computes")
@click.option("--force", is_flag=True, help="Also with jobs on it: they are canceled.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@accepts("--no-wait")
@common
def delete(session: Session, name: str, force: bool, yes: bool) -> None:
    """Delete a cluster; its nodes must be free, or `--force` cancels the jobs on it.

    Example: yard compute delete -n cpu-cluster --yes
    """
    client = session.client()
    client.computes.get(name)
    confirm(f"Delete compute `{name}`?", yes)
    gone = client.computes.delete(name, force)
    text = f"Compute `{name}` is deleted."
    if not gone:
        text = f"Compute `{name}` takes no more jobs, and is gone when those on it have ended."
    tables.done(session.form, {"name": name, "deleted": gone}, text)


def _print(session: Session, compute: Compute) -> None:
    for notice in compute.notices:
        warn(notice)
    raw = {key: value for key, value in compute.raw.items() if key != "notices"}
    tables.one(session.form, raw, lambda: tables.fields(_page(raw)))


def _show(session: Session, compute: Compute) -> None:
    """The cluster, what runs where, who waits and why, and what it has cost."""
    client = session.client()
    if session.form.kind != "table":
        tables.one(session.form, compute.raw, lambda: "")
        return
    nodes = client.computes.nodes(compute.name)
    usage = client.computes.history(compute.name).usage
    parts = [tables.fields([*_page(compute.raw), *_cost(usage)])]
    if nodes.nodes:
        parts.append(tables.table_text(nodes.nodes.raw, _NODE_COLUMNS))
    if nodes.waiting:
        parts.append(tables.table_text(nodes.waiting.raw, _WAITING_COLUMNS))
    more = nodes.waiting_count - len(nodes.waiting)
    if more:
        parts.append(f"… and {more} more wait.")
    tables.one(session.form, compute.raw, lambda: "\n\n".join(parts))


def _page(compute: dict[str, Any]) -> list[tuple[str, Any]]:
    counts = compute.get("node_state_counts") or {}
    states = [f"{count} {key.partition('_')[0]}" for key, count in counts.items() if count]
    promised = ""
    if compute.get("cores"):
        promised = f"{compute['cores']} cores, {compute['memory_bytes'] / 2**30:g} GiB"
    if compute.get("gpus"):
        promised += f", {compute['gpus']} x {compute['gpu_kind'] or 'GPU'}"
    shown = {key: value for key, value in compute.items() if key not in _IN_WORDS}
    return [
        *tables.titled(shown),
        ("A node is", promised),
        ("Nodes", f"{compute.get('current_node_count', 0)} of {compute.get('max_instances')}"),
        ("They are", ", ".join(states)),
    ]


_IN_WORDS = {
    "node_state_counts", "scale_settings", "current_node_count", "cores", "memory_bytes", "gpus",
    "gpu_kind", "workspace", "errors",
}  # fmt: skip


def _cost(usage: Sequence[DayOfUse]) -> list[tuple[str, Any]]:
    """Node-hours in the last 30 days of use, and in all."""

    def hours(days: Sequence[DayOfUse]) -> str:
        there = sum(day.node_hours for day in days)
        busy = sum(day.busy_hours for day in days)
        return f"{there:.2f}, {busy:.2f} of them with jobs"

    if not usage:
        return []
    return [
        ("Node-hours, last 30 days of use", hours(usage[-30:])),
        ("Node-hours in all", hours(usage)),
    ]


def _busy(compute: dict[str, Any]) -> int:
    counts = compute.get("node_state_counts") or {}
    return sum(count for key, count in counts.items() if key != "idle_node_count")


def _state(compute: dict[str, Any]) -> str:
    """Where all is well, what its nodes do; else what becomes of it."""
    state = str(compute.get("provisioning_state"))
    return str(compute.get("allocation_state") or state) if state == "Succeeded" else state
