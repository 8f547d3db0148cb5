"""The properties of a job that torchyard itself reads: `torchyard.<name>`.

Owns: which there are, what each may say, the words when one is wrong.
Leaves: acting on them to who asks: retry.py and the planner.
Always: a property below `torchyard.` that is not in the table is refused with the nearest name,
so that a slip of the pen never goes unnoticed; all others are the user's own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from torchyard.base.documents.faults import joined
from torchyard.base.documents.models import Document
from torchyard.base.errors import InvalidSpec, did_you_mean

Model = TypeVar("Model", bound=Document)

PREFIX = "torchyard."
LOG_QUOTA = f"{PREFIX}log_quota_mb"
LEFT_OUT = f"{PREFIX}left_out"
PREFLIGHT = f"{PREFIX}preflight"
PEER_COPIES = f"{PREFIX}checkpoint.peer_copies"
_DURATION = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)\s*(s|m|h|d)?\Z")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PREFLIGHT = ("on", "warn", "off", "always")

# What each says, for the docs and for messages.
TABLE: dict[str, str] = {
    "torchyard.retry.max_attempts": "how many times the job is tried in all, 1 to 100; without any "
    "key of `retry`, 1, and more often if it was interrupted and has a checkpoint",
    "torchyard.retry.backoff_s": "seconds before the second attempt, doubled for each later one "
    "up to an hour; default 10",
    "torchyard.retry.on": "failures to try again after, all when left out: "
    "`exit 75, signal SIGKILL, log /NCCL .* timeout/, nccl_error`",
    "torchyard.retry.never": "failures never to try again after, in the same words; default: "
    "those that come again, as `cuda_out_of_memory` and `import_failed`",
    "torchyard.retry.elsewhere": "failures to try again after on other nodes of the cluster",
    "torchyard.secrets": "names of environment variables whose values are masked",
    "torchyard.not_secrets": "names of those that only look like secrets",
    "torchyard.hang_after_s": "seconds without output or metric after which every rank's stack "
    "is written to the logs; default off",
    "torchyard.hang_action": "`dump` (the default) or `fail`: what is done then",
    "torchyard.stall_notice_s": "seconds that ranks may stand still before a notice says who waits "
    "for whom: nothing computed, read, written, printed or logged, for longer than three times any "
    "pause before; `0` is off; default 30, for a job of one rank 300",
    "torchyard.rendezvous_timeout_s": "seconds in which all ranks must have joined the process "
    "group; default off",
    "torchyard.preflight": "`on` (the default): what would keep the ranks of a distributed job "
    "from meeting fails it before the first one starts; `warn`: it is told, and they start; "
    "`off`; `always`: as `on`, with a job of one process too",
    "torchyard.log_quota_mb": "MiB of logs that are kept of the job; what is printed beyond is "
    "dropped, and the job goes on; default 1024",
    "torchyard.max_processes": "processes and threads that the ranks of a node may have at once; "
    "one more ends the job with the code `process_limit`; default: the workspace's, or 4096 for "
    "each rank",
    "torchyard.max_open_files": "files that a process may have open; default: as the server",
    "torchyard.disk_quota_mb": "MiB that the ranks of a node may write, outputs and logs included; "
    "more ends the job with the code `disk_limit`; default: the workspace's, or none",
    "torchyard.network": "`open` (the default): ranks connect to everything; `workspace`: to the "
    "server and the job's other nodes; `none`: to nothing but each other and MLflow's address; the "
    "workspace may be stricter",
    "torchyard.min_nodes": "the fewest nodes that the job runs with, where `torchyard.max_nodes` "
    "lets their number change; default 1",
    "torchyard.max_nodes": "the most nodes that the job runs with: it starts with those that are "
    "free, goes on with the others when one is lost, and with more when some become free; default: "
    "the number of nodes stays",
    "torchyard.grow_after": "how long an attempt of such a job runs before it is stopped to go on "
    "with more nodes: `90s`, `10m`, up to 7 days; default `5m`",
    "torchyard.gpus": "how many GPUs a node gets on a cluster without a size, as `local`; default: "
    "one for each process, as far as the machine has them",
    "torchyard.hold": "how long the job stays after its script has ended, well or not, for "
    "`yard job shell` and its services: `30m`, `2h`, up to 7 days; `yard job release` ends that; "
    "default: not at all",
    "torchyard.system_metrics": "`false` turns off that the worker samples what nodes and ranks "
    "use, as metrics below `system/`; default `true`",
    "torchyard.system_metrics.interval": "how often it does: `5s`, `1m`; `1s` at least; default "
    "`10s`",
    "torchyard.notify": "webhooks that are called when the job has ended: `[{url: https://…, on: "
    "[completed, failed, canceled], secret_env: HOOK_SECRET}]`; `url_env` names a secret variable "
    "that holds the URL; all ends when `on` is left out",
    "torchyard.checkpoint.intercept": "`true`: `torch.save` to a path below `./outputs` returns "
    "after the copy to memory, and the file is written in the background; the environment lists "
    "`torchyard-train`; default `false`",
    "torchyard.checkpoint.peer_copies": "`false` turns off that nodes which share no disk keep "
    "copies of each other's checkpoints until the server has them; default `true`",
    "torchyard.cloned_from": "name of the job that this one is a clone of; written by "
    "`yard job clone`",
    LEFT_OUT: "Python code that an ignore file leaves out of `code`, by path, each with the rule's "
    "line; written by `yard` and the Python SDK, so that a module that is missing is explained",
    "torchyard.rehearse_on_cpu": "`true` runs a script written for GPUs on the CPU, to try it; "
    "`false` doesn't, where the workspace does; default: the workspace's",
}


def check(properties: Mapping[str, str]) -> None:
    """
    Raises:
        InvalidSpec: one below `torchyard.` that there is not.
    """
    for key in properties:
        if key.startswith(PREFIX) and key not in TABLE:
            raise InvalidSpec(
                f"`{key[:80]}` is not a property of torchyard",
                did_you_mean(key, TABLE),
                at=("properties", key),
            )


def schema() -> dict[str, Any]:
    """The mapping `torchyard:`, as JSON Schema has it."""
    top: dict[str, Any] = {"type": "object", "properties": {}}
    for name, note in TABLE.items():
        place = top
        *around, last = name.removeprefix(PREFIX).split(".")
        for step in around:
            place = place["properties"].setdefault(step, {})
            place.setdefault("properties", {})
        place["properties"].setdefault(last, {})["description"] = note
    return top


def with_mapping(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with its mapping `torchyard:` as properties.

    Raises:
        InvalidSpec: it is not a mapping, or a property says something else.
    """
    if "torchyard" not in job:
        return dict(job)
    written = _flat(job["torchyard"], ("torchyard",))
    properties = job.get("properties")
    properties = dict(properties) if isinstance(properties, Mapping) else {}
    for key, value in written.items():
        if str(properties.setdefault(key, value)) != value:
            raise InvalidSpec(
                f"`{key}` is `{value[:50]}`, and `{str(properties[key])[:50]}` in `properties`",
                "write it once",
                at=tuple(key.split(".")),
            )
    rest = {key: value for key, value in job.items() if key != "torchyard"}
    return {**rest, "properties": properties}


def read(model: type[Model], document: Any) -> Model:
    """The document as its model has it, with its mapping `torchyard:` as properties.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    if not isinstance(document, Mapping):
        return model.read(document)
    faults: list[InvalidSpec] = []
    try:
        job = with_mapping(document)
    except InvalidSpec as error:
        faults.append(error)
        job = {key: value for key, value in document.items() if key != "torchyard"}
    try:
        file = model.read(job)
    except InvalidSpec as error:
        faults.append(error)
    if faults:
        raise joined(faults, document, ())
    return file


def _flat(value: Any, at: tuple[str, ...]) -> dict[str, str]:
    """Texts by names with dots."""
    if isinstance(value, Mapping):
        flat: dict[str, str] = {}
        for key, below in value.items():
            flat.update(_flat(below, (*at, str(key))))
        return flat
    if len(at) == 1:
        raise InvalidSpec(
            "`torchyard` is not a mapping", "write `torchyard: {network: none}`", at=at
        )
    return {".".join(at): value if isinstance(value, str) else json.dumps(value)}


def truth(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """
    Raises:
        InvalidSpec: neither true nor false.
    """
    written = properties.get(key, str(default))
    if written.lower() not in ("true", "false"):
        raise InvalidSpec(f"`{key}` is `{written[:50]}`", "true or false", at=("properties", key))
    return written.lower() == "true"


def number(
    properties: Mapping[str, str], key: str, default: float, least: float, maximum: float
) -> float:
    """
    Raises:
        InvalidSpec: it is not a number, or out of range.
    """
    written = properties.get(key)
    if written is None:
        return default
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not least <= value <= maximum:
        raise InvalidSpec(
            f"`{key}` is `{written[:50]}`",
            f"a number from {least:g} to {maximum:g}",
            at=("properties", key),
        )
    return value


def count(properties: Mapping[str, str], key: str, default: int, least: int, maximum: int) -> int:
    """
    Raises:
        InvalidSpec: it is not a whole number, or out of range.
    """
    value = number(properties, key, default, least, maximum)
    if value != int(value):
        raise InvalidSpec(
            f"`{key}` is `{properties[key][:50]}`", "a whole number", at=("properties", key)
        )
    return int(value)


def duration_s(written: str) -> float:
    """Seconds of `90s`, `30m`, `2h`, `1d` or a plain number; -1 when it is not a time."""
    match = _DURATION.match(written.strip())
    return float(match[1]) * _UNITS[match[2] or ""] if match else -1.0


def bounded_duration_s(
    properties: Mapping[str, str], key: str, default_s: float, longest_s: float, hint: str
) -> float:
    """Seconds of a time such as `90s`.

    Raises:
        InvalidSpec: it is not a time, or longer than `longest_s`.
    """
    written = properties.get(key, "").strip()
    if not written:
        return default_s
    seconds = duration_s(written)
    if not 0 <= seconds <= longest_s:
        raise InvalidSpec(f"`{key}` is `{written[:50]}`", hint, at=("properties", key))
    return seconds


def words(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    """A list: separated by commas, or written as JSON.

    Raises:
        InvalidSpec: it begins as JSON and is none.
    """
    written = properties.get(key, "").strip()
    if not written.startswith("["):
        return tuple(word.strip() for word in written.split(",") if word.strip())
    try:
        read: Any = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InvalidSpec(
            f"`{key}` starts like a JSON list but is not valid JSON: {error}",
            "write `a, b`, or a JSON list of texts",
            at=("properties", key),
        ) from error
    return tuple(str(word) for word in read)


def log_quota_mb(properties: Mapping[str, str]) -> int:
    """How much of what a job prints is kept, over all its attempts, in MiB.

    Raises:
        InvalidSpec: it is not a whole number, or out of range.
    """
    return count(properties, LOG_QUOTA, 1024, 1, 1 << 20)


def keeps_peer_copies(properties: Mapping[str, str]) -> bool:
    """Whether the nodes of the job keep copies of each other's checkpoints.

    Raises:
        InvalidSpec: neither true nor false.
    """
    return truth(properties, PEER_COPIES, True)


def preflight(properties: Mapping[str, str]) -> str:
    """`on`, `warn`, `off` or `always`.

    Raises:
        InvalidSpec: it is none of these.
    """
    written = properties.get(PREFLIGHT, _PREFLIGHT[0])
    if written not in _PREFLIGHT:
        raise InvalidSpec(
            f"`{PREFLIGHT}` is `{written[:50]}`",
            did_you_mean(written, _PREFLIGHT),
            at=("properties", PREFLIGHT),
        )
    return written
