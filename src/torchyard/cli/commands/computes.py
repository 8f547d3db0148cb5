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
    ("OWNER", lambda node: node["owner"]),
    ("RANK", lambda node: node["rank"]),
    ("GPUS", lambda node: " ".join(str(device["index"]) for device in node["devices"])),
]
_WAITING_COLUMNS: list[tables.Column] = [
    ("WAITING JOB", lambda job: job["job"]),
    ("OWNER", lambda job: job["owner"]),
    ("NODES", lambda job: job["node_count"]),
    ("SINCE", lambda job: tables.moment(job["since"])),
    ("REASON", lambda job: job["why"] or "starts at the next scheduling pass"),
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
    """Add the options that `create` and `update` share."""
    for option in reversed(_SIZE_OPTIONS):
        command = option(command)
    return command


_SIZE_OPTIONS = (
    click.option(
        "--min-instances", type=int, default=None, help="Number of nodes to keep when idle."
    ),
    click.option("--max-instances", type=int, default=None, help="Maximum number of nodes."),
    click.option(
        "--idle-time-before-scale-down",
        type=int,
        default=None,
        metavar="SECONDS",
        help="Remove a node that has been idle for so long.",
    ),
    click.option("--tier", default=None, help="Tier: dedicated or low_priority."),
    click.option("--description", default=None, help="Description."),
    click.option("--tags", multiple=True, metavar="KEY=VALUE", help="Tags to set."),
    accepts("--no-wait"),
)


@group.command("create")
@click.option("-n", "--name", default=None, help="Compute name.")
@click.option("-t", "--type", "kind", default=None, help="Type: amlcompute.")
@click.option("-s", "--size", default=None, help="Node size, such as STANDARD_D2_V2.")
@accepts("--location")
@click.option("--engine", default=None, help="Where nodes run: local, the server's machine.")
@_sized
@common
@filed("compute")
def create(
    session: Session,
    document: Document,
    kind: str | None,
    tags: tuple[str, ...],
    **options: Any,
) -> None:
    """Create or change a cluster.

    Example: yard compute create -n cpu-cluster --type amlcompute --size STANDARD_D2_V2
    --max-instances 4
    """
    document.fill({"type": kind, "tags": tagged(tags), **options})
    try:
        compute = session.client().computes.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, compute)


@group.command("update")
@named("compute", "computes")
@_sized
@common
@filed("compute")
def update(
    session: Session, document: Document, name: str, tags: tuple[str, ...], **options: Any
) -> None:
    """Change a cluster; settings that are not given stay the same.

    Example: yard compute update -n cpu-cluster --max-instances 8
    """
    document.fill({"tags": tagged(tags), **options})
    if not document.value:
        raise InvalidInput("no changes were given", "use `--max-instances 4`, or `--set a=b`")
    try:
        compute = session.client().computes.update(name, document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, compute)


@group.command("list")
@click.option("-t", "--type", "kind", default="", help="List only this type.")
@many
@common
def list_computes(session: Session, kind: str, max_results: int | None) -> None:
    """List clusters.

    Example: yard compute list
    """
    computes = session.client().computes.list()
    wanted = kind.lower()
    kept = [row.raw for row in computes if not wanted or row.type.lower() == wanted]
    tables.rows(session.form, at_most(kept, "no", max_results), _COLUMNS)


@group.command("show")
@named("compute", "computes")
@common
def show(session: Session, name: str) -> None:
    """Show a cluster: its nodes, waiting jobs and usage.

    Example: yard compute show -n cpu-cluster
    """
    _show(session, session.client().computes.get(name))


@group.command("list-nodes")
@named("compute", "computes")
@common
def list_nodes(session: Session, name: str) -> None:
    """List a cluster's nodes and what runs on them.

    Example: yard compute list-nodes -n cpu-cluster
    """
    tables.rows(session.form, session.client().computes.nodes(name).nodes.raw, _NODE_COLUMNS)


@group.command("sizes")
@click.option(
    "-s", "--search", default="", metavar="TEXT", help="List only names that contain TEXT."
)
@accepts("--location")
@common
def sizes(session: Session, search: str) -> None:
    """List node sizes, and how many nodes of each fit on this machine.

    Example: yard compute sizes --search NC
    """
    all_sizes = session.client().computes.sizes()
    wanted = search.lower()
    rows = [size.raw for size in all_sizes if wanted in size.name.lower()]
    tables.rows(session.form, rows, _SIZE_COLUMNS)


# The name in `az ml compute`.
group.add_command(sizes, "list-sizes")


@group.command("delete")
@named("compute", "computes")
@click.option("--force", is_flag=True, help="Cancel the jobs on it.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@accepts("--no-wait")
@common
def delete(session: Session, name: str, force: bool, yes: bool) -> None:
    """Delete a cluster; its nodes must be free unless `--force` cancels their jobs.

    Example: yard compute delete -n cpu-cluster --yes
    """
    client = session.client()
    client.computes.get(name)
    confirm(f"Delete compute `{name}`?", yes)
    gone = client.computes.delete(name, force)
    text = f"Compute `{name}` is deleted."
    if not gone:
        text = f"Compute `{name}` accepts no more jobs and is deleted when its jobs have ended."
    tables.done(session.form, {"name": name, "deleted": gone}, text)


def _print(session: Session, compute: Compute) -> None:
    for notice in compute.notices:
        warn(notice)
    raw = {key: value for key, value in compute.raw.items() if key != "notices"}
    tables.one(session.form, raw, lambda: tables.fields(_page(raw)))


def _show(session: Session, compute: Compute) -> None:
    """Print the cluster, its nodes, the waiting jobs with their reasons, and its usage."""
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
        parts.append(f"… and {more} more waiting.")
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
        ("Node", promised),
        ("Nodes", f"{compute.get('current_node_count', 0)} of {compute.get('max_instances')}"),
        ("Node states", ", ".join(states)),
    ]


_IN_WORDS = {
    "node_state_counts", "scale_settings", "current_node_count", "cores", "memory_bytes", "gpus",
    "gpu_kind", "workspace", "errors",
}  # fmt: skip


def _cost(usage: Sequence[DayOfUse]) -> list[tuple[str, Any]]:
    """Node-hours in the last 30 days of use, and in total."""

    def hours(days: Sequence[DayOfUse]) -> str:
        there = sum(day.node_hours for day in days)
        busy = sum(day.busy_hours for day in days)
        return f"{there:.2f}, {busy:.2f} of them busy"

    if not usage:
        return []
    return [
        ("Node-hours, last 30 days of use", hours(usage[-30:])),
        ("Node-hours in total", hours(usage)),
    ]


def _busy(compute: dict[str, Any]) -> int:
    counts = compute.get("node_state_counts") or {}
    return sum(count for key, count in counts.items() if key != "idle_node_count")


def _state(compute: dict[str, Any]) -> str:
    """The allocation state, or the provisioning state unless that is Succeeded."""
    state = str(compute.get("provisioning_state"))
    return str(compute.get("allocation_state") or state) if state == "Succeeded" else state
