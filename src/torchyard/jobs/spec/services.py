"""What a job file says of services beside its ranks.

Owns: reading `services`, what each type needs, the environment that some are run from.
Leaves: starting them to worker/interactive/, reaching them to interactive/.
Always: what can't be served is refused by name, or told as a notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import text
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.values import At, known_keys, mapping, served

JUPYTER, TENSORBOARD, VS_CODE, SSH, CUSTOM = (
    "jupyter_lab",
    "tensor_board",
    "vs_code",
    "ssh",
    "custom",
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_MOST = 16
_LONGEST = 4096
_PORTS = range(1, 65536)
INHERITED = "inherited"
HOLD = f"{own_properties.PREFIX}hold"
_LONGEST_HOLD_S = 7 * 86400
# What is run where the job's environment does not have it.
_LAYER = ("jupyterlab>=4.2,<5", "ipykernel>=6.29", "tensorboard>=2.17", "setuptools<81")
_OLDEST_PYTHON, _NEWEST_PYTHON, _USUAL_PYTHON = 10, 13, "3.11"
_PYTHON = re.compile(r"3\.(\d+)(?:\.\d+)?\Z")


@dataclass(frozen=True)
class Service:
    """One service. `port` is 0 where the node chooses it; `command` starts a custom one, which the
    script starts itself when it is empty; `all_nodes`: on each node, not on node 0 alone;
    `is_handed`: the script inherits the socket that it listens at.
    """

    name: str
    type: str
    port: int = 0
    all_nodes: bool = False
    log_dir: str = ""
    command: str = ""
    is_handed: bool = False


def read(job: Mapping[str, Any]) -> tuple[dict[str, Service], list[str]]:
    """The services, and notices about what is not started.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    services: dict[str, Service] = {}
    notices: list[str] = []
    for key, value in mapping(job.get("services") or {}, ("services",), "`services`").items():
        name, at = str(key), ("services", str(key))
        body = mapping(value or {}, at, f"`services.{name}`")
        known_keys(body, "services.*", at)
        if not _NAME.match(name):
            raise InvalidSpec(
                f"`{name[:80]}` is not a valid name for a service",
                "use up to 64 letters, digits, `-` and `_`",
                at=at,
            )
        kind = served(body, "type", at, "services.*.type", "")
        if kind == SSH:
            notices.append(
                f"`services.{name}` (ssh) starts no SSH server, which would need root on the "
                "node: `yard job shell` opens a shell inside the job"
            )
        else:
            services[name] = _service(name, kind or CUSTOM, body, at)
    if len(services) > _MOST:
        raise InvalidSpec(
            f"the job has {len(services)} services", f"ask for at most {_MOST}", at=("services",)
        )
    return services, notices


def _service(name: str, kind: str, body: Mapping[str, Any], at: At) -> Service:
    extra = mapping(body.get("properties") or {}, (*at, "properties"), "`properties`")
    port = _port(body, at)
    command = str(extra.get("command") or "")
    log_dir = text(body, "log_dir", at) or str(extra.get("logDir") or extra.get("rootDir") or "")
    all_nodes = _all_nodes(body, at)
    is_handed = _is_handed(
        extra.get("socket"), kind == CUSTOM and not (port or command or all_nodes), at
    )
    if kind == CUSTOM and not (port or command or is_handed):
        raise InvalidSpec(
            f"`services.{name}` says neither a `port` nor a command",
            "write the `port` that your script listens on, or "
            "`properties: {command: …}` for a program that listens on `$PORT`",
            at=at,
        )
    for key, value in (("command", command), ("log_dir", log_dir)):
        if "\0" in value or len(value) > _LONGEST:
            raise InvalidSpec(f"`{key}` of `services.{name}` is not usable", "shorten it", at=at)
    return Service(name, kind, port, all_nodes, log_dir, command, is_handed)


def _is_handed(value: Any, may_be: bool, at: At) -> bool:
    if value is None:
        return False
    if value != INHERITED or not may_be:
        raise InvalidSpec(
            f"`socket` of a service can only be `{INHERITED}`, of a `custom` one on the first node "
            "that has neither `port` nor `command`",
            f"write `properties: {{socket: {INHERITED}}}`: the script is started with a Unix "
            "socket that already listens",
            at=(*at, "properties", "socket"),
        )
    return True


def _port(body: Mapping[str, Any], at: At) -> int:
    value = body.get("port")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value not in _PORTS:
        raise InvalidSpec(
            f"`{str(value)[:20]}` is not a port", "a number from 1 to 65535", at=(*at, "port")
        )
    return int(value)


def _all_nodes(body: Mapping[str, Any], at: At) -> bool:
    value = body.get("nodes")
    if isinstance(value, Mapping):  # as Azure's clients send it
        value = value.get("nodesValueType") or value.get("nodes_value_type")
    written = str(value or "").lower()
    if written not in ("", "all"):
        raise InvalidSpec(
            f"`nodes: {written[:40]}` is not known",
            "write `all`, or leave it out for the first node",
            at=(*at, "nodes"),
        )
    return written == "all"


def hold_s(properties: Mapping[str, str]) -> float:
    """How long a job stays after its script has ended, in seconds; 0 when it does not.

    Raises:
        InvalidSpec: it is not a time.
    """
    hint = "write a time such as `90s`, `30m` or `2h`, up to 7 days"
    return own_properties.bounded_duration_s(properties, HOLD, 0.0, _LONGEST_HOLD_S, hint)


def layer(job_python: str) -> dict[str, Any]:
    """The definition of the environment that services are run from, beside a job's own.

    It has the job's Python where it can, so that notebooks run in the job's environment.
    """
    match = _PYTHON.match(job_python)
    usable = match is not None and _OLDEST_PYTHON <= int(match[1]) <= _NEWEST_PYTHON
    python = f"3.{match[1]}" if match and usable else _USUAL_PYTHON
    return {
        "conda_file": {
            "name": "torchyard-services",
            "dependencies": [f"python={python}", "pip", {"pip": list(_LAYER)}],
        }
    }


def needs_layer(services: Mapping[str, Service]) -> bool:
    return any(service.type in (JUPYTER, TENSORBOARD) for service in services.values())
