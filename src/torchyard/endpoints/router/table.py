"""The table: which endpoints and instances the router knows, and what holds for them.

Owns: the types of `HOME/router/table.json`, reading and writing its text.
Leaves: what is in it to the keeper that writes it, following the file to table_file.py.
Always: the text is checked value by value; an endpoint that is wrong is left out by name, and the
others count.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MODES = ("key", "aml_token", "aad_token")
ROLLING = ("minute", "hour", "day", "month", "year")
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
_COLLECTION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")
_ID = re.compile(r"[\x21-\x7e]{1,255}\Z")
_MOST_BYTES = 64 << 20
_LONGEST_MS = 24 * 3600 * 1000


class BrokenTable(ValueError):
    """The text is not a table; the message says where."""


@dataclass(frozen=True)
class Auth:
    """
    Attributes:
        mode: one of MODES.
        keys: SHA-256 of each key that is good.
        token_secret: signs the endpoint's tokens.
    """

    mode: str
    keys: tuple[bytes, ...] = ()
    token_secret: bytes = b""


@dataclass(frozen=True)
class InstanceRow:
    """One instance; a draining one gets no new request.

    `socket` is the path of a Unix socket that nobody but this process's user reaches.
    """

    id: str
    socket: str
    is_draining: bool = False


@dataclass(frozen=True)
class Batching:
    """
    Attributes:
        max_size: rows of one request to the model.
        max_wait_ms: how long the first row waits for others.
    """

    max_size: int
    max_wait_ms: float


@dataclass(frozen=True)
class Collect:
    """
    Attributes:
        folder: absolute; each collection is a folder in it.
        sampling: the share of requests that are kept, 0 to 1, by collection.
        rolling: how long a file is written to, one of ROLLING.
        max_bytes: of all files in `folder`; the oldest ones go.
    """

    folder: str
    sampling: Mapping[str, float]
    rolling: str = "hour"
    max_bytes: int = 1 << 30


@dataclass(frozen=True)
class DeploymentRow:
    """
    Attributes:
        timeout_ms: how long a model may take for an answer.
        max_concurrent: requests at work in one instance.
        max_queue: requests that wait for a free instance.
        max_queue_wait_ms: how long one of them waits.
        can_wake: a request without instance waits while the keeper starts one.
        has_cors: a browser's preflight, which has no key, reaches its instances.
    """

    instances: tuple[InstanceRow, ...] = ()
    timeout_ms: int = 5000
    max_concurrent: int = 1
    max_queue: int = 100
    max_queue_wait_ms: int = 500
    max_body_bytes: int = 100 << 20
    can_wake: bool = False
    batching: Batching | None = None
    collect: Collect | None = None
    has_cors: bool = False


@dataclass(frozen=True)
class EndpointRow:
    """
    Attributes:
        traffic: weight by deployment.
        mirror: percent of requests that are copied, by deployment.
    """

    auth: Auth
    traffic: Mapping[str, int] = field(default_factory=dict)
    mirror: Mapping[str, int] = field(default_factory=dict)
    deployments: Mapping[str, DeploymentRow] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """
    Attributes:
        version: raised with every change.
        server: the address that is asked who may use an endpoint with `aad_token`.
        server_ca: a PEM file that the server's certificate is checked with; the system's if empty.
        endpoints: by `<workspace>/<name>`.
        broken: what is wrong, by endpoint; those are not among `endpoints`.
    """

    version: int = 0
    server: str = ""
    server_ca: str = ""
    endpoints: Mapping[str, EndpointRow] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)


def parse(text: bytes) -> Table:
    """
    Raises:
        BrokenTable: it is half written, or something else.
    """
    if len(text) > _MOST_BYTES:
        raise BrokenTable(f"the table is longer than {_MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenTable(f"not JSON: {error}") from error
    top = _object(document, "table")
    endpoints: dict[str, EndpointRow] = {}
    broken: dict[str, str] = {}
    for name, value in _object(top.get("endpoints"), "endpoints").items():
        try:
            endpoints[name] = _endpoint(name, value)
        except BrokenTable as error:
            broken[name] = str(error)
    return Table(
        version=_bounded_integer(top.get("version"), "version", 0, 1 << 62),
        server=_text(top.get("server", ""), "server"),
        server_ca=_text(top.get("server_ca", ""), "server_ca"),
        endpoints=endpoints,
        broken=broken,
    )


def to_text(table: Table) -> bytes:
    """As `parse` reads it."""
    document = {
        "version": table.version,
        "server": table.server,
        "server_ca": table.server_ca,
        "endpoints": {name: _endpoint_json(row) for name, row in table.endpoints.items()},
    }
    return json.dumps(document).encode()


def _endpoint_json(row: EndpointRow) -> dict[str, Any]:
    return {
        "auth": {
            "mode": row.auth.mode,
            "keys": [key.hex() for key in row.auth.keys],
            "token_secret": base64.b64encode(row.auth.token_secret).decode(),
        },
        "traffic": dict(row.traffic),
        "mirror": dict(row.mirror),
        "deployments": {name: _deployment_json(each) for name, each in row.deployments.items()},
    }


def _deployment_json(row: DeploymentRow) -> dict[str, Any]:
    return {
        **vars(row),
        "instances": [vars(each) for each in row.instances],
        "batching": None if row.batching is None else vars(row.batching),
        "collect": None if row.collect is None else vars(row.collect),
    }


def _endpoint(name: str, value: Any) -> EndpointRow:
    workspace, _, endpoint = name.partition("/")
    if not _NAME.match(workspace) or not _NAME.match(endpoint):
        raise BrokenTable(f"endpoints: `{name[:80]}` is not `<workspace>/<name>`")
    at = f"endpoints.{name}"
    row = _object(value, at)
    deployments = {}
    for each, of_each in _object(row.get("deployments", {}), f"{at}.deployments").items():
        if not _NAME.match(each):
            raise BrokenTable(f"{at}.deployments: `{each[:80]}` is not a name")
        deployments[each] = _deployment(of_each, f"{at}.deployments.{each}")
    return EndpointRow(
        auth=_auth(row.get("auth"), f"{at}.auth"),
        traffic=_weights(row.get("traffic"), f"{at}.traffic", deployments),
        mirror=_weights(row.get("mirror"), f"{at}.mirror", deployments),
        deployments=deployments,
    )


def _auth(value: Any, at: str) -> Auth:
    row = _object(value, at)
    mode = row.get("mode")
    if mode not in MODES:
        raise BrokenTable(f"{at}.mode: not one of {', '.join(MODES)}")
    keys = row.get("keys") or []
    if not isinstance(keys, list) or not all(isinstance(k, str) and _HASH.match(k) for k in keys):
        raise BrokenTable(f"{at}.keys: not a list of SHA-256 in hexadecimal")
    try:
        secret = base64.b64decode(_text(row.get("token_secret") or "", f"{at}.token_secret"))
    except binascii.Error as error:
        raise BrokenTable(f"{at}.token_secret: not base64") from error
    if mode == "aml_token" and not secret:
        raise BrokenTable(f"{at}.token_secret: empty")
    return Auth(str(mode), tuple(bytes.fromhex(key) for key in keys), secret)


def _weights(value: Any, at: str, deployments: Mapping[str, DeploymentRow]) -> dict[str, int]:
    weights = {}
    for name, weight in _object(value or {}, at).items():
        if name not in deployments:
            raise BrokenTable(f"{at}: no deployment `{name[:80]}`")
        weights[name] = _bounded_integer(weight, f"{at}.{name}", 0, 100)
    return weights


def _deployment(value: Any, at: str) -> DeploymentRow:
    row = _object(value, at)
    listed = row.get("instances") or []
    if not isinstance(listed, list):
        raise BrokenTable(f"{at}.instances: not a list")
    instances = tuple(_instance(each, f"{at}.instances[{n}]") for n, each in enumerate(listed))
    if len({each.id for each in instances}) != len(instances):
        raise BrokenTable(f"{at}.instances: two have the same id")

    def bounded_integer(name: str, default: int, least: int, maximum: int) -> int:
        return _bounded_integer(row.get(name, default), f"{at}.{name}", least, maximum)

    return DeploymentRow(
        instances=instances,
        timeout_ms=bounded_integer("timeout_ms", 5000, 1, _LONGEST_MS),
        max_concurrent=bounded_integer("max_concurrent", 1, 1, 100_000),
        max_queue=bounded_integer("max_queue", 100, 0, 1_000_000),
        max_queue_wait_ms=bounded_integer("max_queue_wait_ms", 500, 0, _LONGEST_MS),
        max_body_bytes=bounded_integer("max_body_bytes", 100 << 20, 0, 1 << 50),
        can_wake=_flag(row.get("can_wake", False), f"{at}.can_wake"),
        batching=_batching(row.get("batching"), f"{at}.batching"),
        collect=_collect(row.get("collect"), f"{at}.collect"),
        has_cors=_flag(row.get("has_cors", False), f"{at}.has_cors"),
    )


def _instance(value: Any, at: str) -> InstanceRow:
    row = _object(value, at)
    name, path = _text(row.get("id"), f"{at}.id"), _text(row.get("socket"), f"{at}.socket")
    if not _ID.match(name):
        raise BrokenTable(f"{at}.id: not 1 to 255 visible characters")
    if not path.startswith("/") or "\0" in path:
        raise BrokenTable(f"{at}.socket: not an absolute path")
    return InstanceRow(
        name,
        path,
        _flag(row.get("is_draining", False), f"{at}.is_draining"),
    )


def _batching(value: Any, at: str) -> Batching | None:
    if value is None:
        return None
    row = _object(value, at)
    return Batching(
        _bounded_integer(row.get("max_size"), f"{at}.max_size", 1, 1_000_000),
        _number(row.get("max_wait_ms"), f"{at}.max_wait_ms", 0, _LONGEST_MS),
    )


def _collect(value: Any, at: str) -> Collect | None:
    if value is None:
        return None
    row = _object(value, at)
    folder = _text(row.get("folder"), f"{at}.folder")
    if not folder.startswith("/") or "\0" in folder:
        raise BrokenTable(f"{at}.folder: not an absolute path")
    rolling = row.get("rolling", "hour")
    if rolling not in ROLLING:
        raise BrokenTable(f"{at}.rolling: not one of {', '.join(ROLLING)}")
    sampling = {}
    for name, rate in _object(row.get("sampling"), f"{at}.sampling").items():
        if not _COLLECTION.match(name):
            raise BrokenTable(f"{at}.sampling: `{name[:80]}` is not a collection's name")
        sampling[name] = _number(rate, f"{at}.sampling.{name}", 0, 1)
    max_bytes = _bounded_integer(row.get("max_bytes", 1 << 30), f"{at}.max_bytes", 1, 1 << 50)
    return Collect(folder, sampling, str(rolling), max_bytes)


def _object(value: Any, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BrokenTable(f"{at}: not an object")
    return value


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise BrokenTable(f"{at}: not a string")
    return value


def _flag(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        raise BrokenTable(f"{at}: not true or false")
    return value


def _bounded_integer(value: Any, at: str, least: int, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= maximum:
        raise BrokenTable(f"{at}: not a whole number from {least} to {maximum}")
    return value


def _number(value: Any, at: str, least: float, maximum: float) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not least <= value <= maximum:
        raise BrokenTable(f"{at}: not a number from {least} to {maximum}")
    return float(value)
