"""What a job file says of services beside its ranks.

Owns: reading `services`, what each type needs, the environment that some are run from.
Leaves: starting them to worker/interactive/, reaching them to interactive/.
Always: what can't be served is refused by name, or told as a notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Choice, Key, Text
from torchyard.base.documents.faults import entries, within
from torchyard.base.documents.models import declared
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.parts import JobPart, mapping

JUPYTER, TENSORBOARD, VS_CODE, SSH, CUSTOM = (
    "jupyter_lab",
    "tensor_board",
    "vs_code",
    "ssh",
    "custom",
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 _-]{0,62}[A-Za-z0-9_-])?\Z")
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

_SSH = "no SSH server is started, and a notice says so: `yard job shell` opens a shell inside"
_TYPE = Choice(
    jupyter_lab=Key("JupyterLab, in the job's environment and folder"),
    tensor_board=Key("TensorBoard over `log_dir`"),
    vs_code=Key("where the environment has `code-server`"),
    ssh=Key(_SSH, "satisfied"),
    custom=Key(
        "what your script serves at `port`, or `properties.command` at `$PORT`; the default"
    ),
)


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


def _port(value: Any, at: At) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _PORTS:
        raise InvalidSpec(f"`{str(value)[:20]}` is not a port", "a number from 1 to 65535", at=at)
    return int(value)


def _is_on_all_nodes(value: Any, at: At) -> bool:
    if isinstance(value, Mapping):  # as Azure's clients send it
        value = value.get("nodesValueType") or value.get("nodes_value_type")
    written = str(value or "").lower()
    if written not in ("", "all"):
        raise InvalidSpec(
            f"`nodes: {written[:40]}` is not known",
            "write `all`, or leave it out for the first node",
            at=at,
        )
    return written == "all"


def _properties(value: Any, at: At) -> Mapping[str, Any]:
    return mapping(value, at, "`properties`")


class ServiceFile(JobPart):
    path_in_file: ClassVar[str] = "services.*"

    type: str = declared(CUSTOM, check=_TYPE)
    port: int = declared(0, "of `custom`; the others need none", By(_port))
    nodes: bool = declared(False, "`all`; the first node when left out", By(_is_on_all_nodes))
    log_dir: str = declared(
        "", "of `tensor_board`, in the job's folder; all of it by default", Text()
    )
    ssh_public_keys: Any = declared(None, _SSH, support="satisfied")
    properties: Mapping[str, Any] = declared(
        {},
        "`logDir` as `log_dir`; `command` of `custom`, or `socket: inherited`: the script is "
        "started with a Unix socket that already listens",
        By(_properties),
    )

    def of(self, name: str) -> Service:
        """
        Raises:
            InvalidSpec: keys that don't go together, at a place within this service.
        """
        extra, command = self.properties, str(self.properties.get("command") or "")
        log_dir = self.log_dir or str(extra.get("logDir") or extra.get("rootDir") or "")
        is_bare = self.type == CUSTOM and not (self.port or command or self.nodes)
        if extra.get("socket") is not None and (extra["socket"] != INHERITED or not is_bare):
            raise InvalidSpec(
                f"`socket` of a service can only be `{INHERITED}`, of a `custom` one on the first "
                "node that has neither `port` nor `command`",
                f"write `properties: {{socket: {INHERITED}}}`: the script is started with a Unix "
                "socket that already listens",
                at=("properties", "socket"),
            )
        is_handed = extra.get("socket") is not None
        if self.type == CUSTOM and not (self.port or command or is_handed):
            raise InvalidSpec(
                f"`services.{name}` says neither a `port` nor a command",
                "write the `port` that your script listens on, or "
                "`properties: {command: …}` for a program that listens on `$PORT`",
            )
        for key, value in (("command", command), ("log_dir", log_dir)):
            if "\0" in value or len(value) > _LONGEST:
                raise InvalidSpec(f"`{key}` of `services.{name}` is not usable", "shorten it")
        return Service(name, self.type, self.port, self.nodes, log_dir, command, is_handed)


def read(value: Any, at: At) -> dict[str, Service]:
    """The services; those of type ssh, which are not started, are among them.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    body = mapping(value, at, "`services`", "{NAME: {type: jupyter_lab}}")
    services = entries({str(name): each for name, each in body.items()}, at, _service)
    if sum(service.type != SSH for service in services.values()) > _MOST:
        raise InvalidSpec(
            f"the job has {len(services)} services", f"ask for at most {_MOST}", at=at
        )
    return services


def _service(value: Any, at: At) -> Service:
    name = str(at[-1])
    file = ServiceFile.read(value or {}, at)
    if not _NAME.match(name):
        raise InvalidSpec(
            f"`{name[:80]}` is not a valid name for a service",
            "use up to 64 letters, digits, spaces, `-` and `_`",
            at=at,
        )
    return Service(name, SSH) if file.type == SSH else within(at, file.of, name)


def started(services: Mapping[str, Service]) -> dict[str, Service]:
    return {name: service for name, service in services.items() if service.type != SSH}


def notices(services: Mapping[str, Service]) -> list[str]:
    """About those that are not started."""
    return [
        f"`services.{name}` (ssh) starts no SSH server, which would need root on the node: "
        "`yard job shell` opens a shell inside the job"
        for name, service in services.items()
        if service.type == SSH
    ]


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
