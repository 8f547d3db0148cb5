"""`yard compute …`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.cli.compute import check, instances
from torchyard.cli.parsing.group import noun
from torchyard.cli.parsing.options import (
    Session,
    accepts,
    at_most,
    common,
    confirm,
    filed,
    many,
    name_argument,
    tagged,
    takes_over,
    warn,
)
from torchyard.cli.terminal import tables
from torchyard.shared.sizes import size_text

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.computes import Compute, DayOfUse

group = noun("compute")
group.add_command(check.check)
for _verb in (instances.start, instances.stop, instances.restart, instances.open_instance):
    group.add_command(_verb)

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
_MACHINE_COLUMNS: list[tables.Column] = [
    ("MACHINE", lambda node: node["name"]),
    ("STATE", lambda node: node["state"]),
    ("ADDRESS", lambda node: node["address"]),
    ("CORES", lambda node: node["cpus"] or ""),
    ("MEMORY", lambda node: size_text(node["memory_bytes"]) if node["memory_bytes"] else ""),
    ("GPUS", lambda node: f"{node['gpus']} {node['gpu_kind']}".strip() if node["gpus"] else ""),
    ("JOBS", lambda node: " ".join(node["users"])),
    ("REASON", lambda node: node["reason"]),
]
_COUNT_COLUMNS: list[tables.Column] = [
    ("AT", lambda count: tables.moment(count["at"])),
    ("NODES", lambda count: count["current"]),
    ("BUSY", lambda count: count["running"]),
    ("TARGET", lambda count: count["target"]),
    ("MACHINES", lambda count: count.get("machines")),
    ("REASON", lambda count: count["reason"]),
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
@click.option("-t", "--type", "kind", default=None, help="Type: amlcompute or computeinstance.")
@click.option("-s", "--size", default=None, help="Node size, such as STANDARD_D2_V2.")
@accepts("--location")
@click.option("--engine", default=None, help="What runs the nodes: local, ray or slurm.")
@click.option(
    "--hosts",
    multiple=True,
    metavar="HOST,…",
    help="Make these hosts its nodes, by ssh; with --engine ray.",
)
@_sized
@takes_over
@common
@filed("compute")
def create(
    session: Session,
    document: Document,
    kind: str | None,
    hosts: tuple[str, ...],
    tags: tuple[str, ...],
    take_over: bool,
    **options: Any,
) -> int:
    """Create or change a cluster, or a compute instance, which is started.

    With --hosts your own `ssh` makes each host a node, as `yard node join` there would. Without
    a name the cluster is `machines`. Hosts that have joined are left as they are.

    \b
    Example: yard compute create -n cpu-cluster --type amlcompute --size STANDARD_D2_V2
             yard compute create --engine ray --hosts lab-1,ann@lab-2:2222
    """
    document.fill({"type": kind, "tags": tagged(tags), **options})
    document.take_over(take_over)
    if hosts:
        from torchyard.cli.hosts import clusters_of_hosts

        return clusters_of_hosts.create(session, document, hosts)
    try:
        if instances.is_instance(document.value):
            made = session.client().instances.create(document.value)
            instances.show(session, made)
            return 0
        compute = session.client().computes.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print(session, compute)
    return 0


@group.command("attach")
@click.argument("name", required=False)
@click.option("-n", "--name", "named_so", default=None, help="Compute name.")
@click.option("--engine", default=None, help="What runs the nodes: ray or slurm.")
@click.option("--address", default=None, metavar="HOST:PORT", help="Address of Ray's head.")
@click.option("--partition", default=None, help="Slurm's partition.")
@click.option("--account", default=None, help="Slurm's account.")
@click.option("--qos", default=None, help="Slurm's quality of service.")
@_sized
@common
@filed("compute")
def attach(
    session: Session,
    document: Document,
    named_so: str | None,
    tags: tuple[str, ...],
    name: str | None = None,
    **options: Any,
) -> None:
    """Use a cluster that another engine runs.

    Settings without an option of their own: `--set torchyard.constraint=a100`. Without
    `--max-instances` a job may have as many nodes as the engine has.

    Example: yard compute attach lab --engine slurm --partition gpu
    """
    keys = ("engine", "address", "partition", "account", "qos")
    settings = {key: value for key in keys if (value := options.pop(key)) is not None}
    if not settings.get("engine") and {"address", "partition"} & {*settings}:
        settings["engine"] = "ray" if "address" in settings else "slurm"
    document.fill({"name": name or named_so, "tags": tagged(tags), **options})
    mapping = document.value.setdefault("torchyard", {})
    if isinstance(mapping, dict):
        mapping |= settings
    client = session.client()
    try:
        compute = client.computes.create(document.value)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    try:
        view = client.computes.engine(compute.name)
    except TorchyardError as error:
        bound = f", with at most {compute.max_instances} nodes"
        bound = "" if "max_instances" in document.value else bound
        warn(f"{error.message}; the cluster is kept{bound}: ask again with `yard compute check`")
    else:
        limit = view.most_nodes or len(view.machines)
        if limit and "max_instances" not in document.value:
            compute = client.computes.update(compute.name, {"max_instances": limit})
        for notice in view.notices:
            warn(notice)
    _print(session, compute)


@group.command("update")
@name_argument("compute", "computes")
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
    """List clusters and compute instances.

    Example: yard compute list
    """
    client, compute_type = session.client(), kind.lower()
    rows = [row.raw for row in client.computes.list()]
    rows += [row.raw for row in client.instances.list()]
    matching = [
        row for row in rows if not compute_type or str(row.get("type")).lower() == compute_type
    ]
    tables.rows(session.form, at_most(matching, "no", max_results), _COLUMNS)


@group.command("show")
@name_argument("compute", "computes")
@common
def show(session: Session, name: str) -> None:
    """Show a cluster: its nodes, waiting jobs and usage; or a compute instance.

    Example: yard compute show -n cpu-cluster
    """
    instance = instances.find(session, name)
    if instance is not None:
        instances.show(session, instance)
        return
    _show(session, session.client().computes.get(name))


@group.command("list-nodes")
@name_argument("compute", "computes")
@click.option("--history", is_flag=True, help="List how many nodes there were, over 30 days.")
@common
def list_nodes(session: Session, name: str, history: bool) -> None:
    """List a cluster's nodes and what runs on them, or how many there were.

    \b
    Example: yard compute list-nodes -n cpu-cluster
             yard compute list-nodes -n cpu-cluster --history
    """
    client = session.client()
    if history:
        tables.rows(session.form, client.computes.history(name).counts.raw, _COUNT_COLUMNS)
        return
    if client.computes.get(name).engine in ("", "local"):
        tables.rows(session.form, client.computes.nodes(name).nodes.raw, _NODE_COLUMNS)
        return
    tables.rows(session.form, client.computes.engine(name).machines.raw, _MACHINE_COLUMNS)


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
    term = search.lower()
    rows = [size.raw for size in all_sizes if term in size.name.lower()]
    tables.rows(session.form, rows, _SIZE_COLUMNS)


# The name in `az ml compute`.
group.add_command(sizes, "list-sizes")


@group.command("delete")
@name_argument("compute", "computes")
@click.option("--force", is_flag=True, help="Cancel the jobs on it.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@accepts("--no-wait")
@common
def delete(session: Session, name: str, force: bool, yes: bool) -> None:
    """Delete a cluster; its nodes must be free unless `--force` cancels their jobs.

    Example: yard compute delete -n cpu-cluster --yes
    """
    client = session.client()
    if instances.find(session, name) is not None:
        confirm(f"Delete compute `{name}`?", yes)
        instances.delete(session, name)
        return
    client.computes.get(name)
    confirm(f"Delete compute `{name}`?", yes)
    is_deleted = client.computes.delete(name, force)
    text = f"Compute `{name}` is deleted."
    if not is_deleted:
        text = f"Compute `{name}` accepts no more jobs and is deleted when its jobs have ended."
    tables.done(session.form, {"name": name, "deleted": is_deleted}, text)


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
    if nodes.machines:
        parts.append(tables.table_text(nodes.machines.raw, _MACHINE_COLUMNS))
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
    settings = {**(compute.get("torchyard") or {})}
    settings.pop("engine", None)
    return [
        *tables.titled(shown),
        *((key.replace("_", " ").capitalize(), value) for key, value in settings.items()),
        ("Node", promised),
        ("Nodes", f"{compute.get('current_node_count', 0)} of {compute.get('max_instances')}"),
        ("Node states", ", ".join(states)),
    ]


_IN_WORDS = {
    "node_state_counts", "scale_settings", "current_node_count", "cores", "memory_bytes", "gpus",
    "gpu_kind", "workspace", "errors", "torchyard",
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
    if instances.is_instance(compute):
        return str(compute.get("state"))
    state = str(compute.get("provisioning_state"))
    return str(compute.get("allocation_state") or state) if state == "Succeeded" else state
