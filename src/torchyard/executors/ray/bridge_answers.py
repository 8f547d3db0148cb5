"""What a bridge may say: its lines, and the form of its answers.

Owns: the limits of a line, and which keys and types the server reads.
Leaves: what they mean to cluster.py and engine.py.
Always: a line is JSON within a limit, never a pickle; an answer that passes has every key that the
server reads, of the type that it expects, so that a cluster in hostile hands fails its own jobs and
nobody else's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

MOST_BYTES = 16 << 20
_MOST_TEXT = 10_000
_NODE_STATES = ("pending", "running", "exited", "lost")


class BadAnswer(Exception):
    """A bridge says what none does."""


def read(line: bytes) -> dict[str, Any]:
    """One line of a bridge: with a `stage`, or an `id` and `result` or `error`.

    Raises:
        BadAnswer: it is none.
    """
    if not line.endswith(b"\n"):
        raise BadAnswer("a line without an end, or a longer one than any")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise BadAnswer("a line that is not JSON") from None
    if not isinstance(message, dict):
        raise BadAnswer("a line that is not an object")
    if "stage" in message:
        _texts(message, "stage")
        if message["stage"] == "failed":
            _texts(message, "kind")
            if message["kind"] == "version":
                _texts(_mapping(message.get("cluster")), "ray", "python")
        return message
    _check(isinstance(message.get("id"), int), "an answer without a number")
    if "error" in message:
        _texts(_mapping(message["error"]), "kind", "message")
    else:
        _check("result" in message, "an answer with neither result nor error")
    return message


def checked(request: str, result: Any) -> Any:
    """The result of a request.

    Raises:
        BadAnswer: it has not the form of one.
    """
    _FORMS[request](_mapping(result))
    return result


def _launch(result: Mapping[str, Any]) -> None:
    _check(isinstance(result.get("launched"), bool), "`launched`")


def _status(result: Mapping[str, Any]) -> None:
    for report in result.values():
        if _mapping(report).get("unknown"):
            continue
        for node in _list(report.get("nodes")):
            _node(_mapping(node))
        if report.get("waiting"):
            _waiting(_mapping(report["waiting"]))


def _node(node: Mapping[str, Any]) -> None:
    _check(node.get("state") in _NODE_STATES, "`state` of a node")
    _optional_texts(node, "address", "because", "said", "node_id")
    _check(isinstance(node.get("code", 0), int), "`code` of a node")
    _check(node["state"] != "lost" or "because" in node, "`because` of a lost node")
    for device in _list(node.get("devices", [])):
        _check(isinstance(device, str), "`devices` of a node")


def _waiting(waiting: Mapping[str, Any]) -> None:
    _texts(waiting, "group", "state")
    for key in ("count", "for_s", "big_enough", "free", "most_nodes"):
        _number(waiting.get(key), key)
    _number(waiting.get("other_labels", 0), "other_labels")
    for count in _mapping(waiting.get("unmet_labels", {})).values():
        _number(count, "unmet_labels")


def _describe(result: Mapping[str, Any]) -> None:
    for node in map(_mapping, _list(result.get("nodes"))):
        _texts(node, "address", "host")
        for key in ("total", "available"):
            for amount in _mapping(node.get(key)).values():
                _number(amount, key)
        labels = _mapping(node.get("labels"))
        _texts(labels, *labels)
        for user in _list(node.get("users")):
            _check(isinstance(user, str), "`users` of a node")
        _check(isinstance(node.get("draining"), bool), "`draining` of a node")
    for lost in map(_mapping, _list(result.get("lost"))):
        _texts(lost, "address", "host", "reason")
    _number(result.get("most_nodes"), "most_nodes")
    for group in _list(result.get("groups")):
        _check(isinstance(group, str), "`groups`")


def _stop(result: Mapping[str, Any]) -> None:
    _check(isinstance(result.get("unknown", False), bool), "`unknown`")


_FORMS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "launch": _launch,
    "status": _status,
    "describe": _describe,
    "stop": _stop,
    "forget": lambda result: None,
}


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise BadAnswer(f"{what} is missing or has another form")


def _mapping(value: Any) -> Mapping[str, Any]:
    _check(isinstance(value, dict), "an object")
    assert isinstance(value, dict)
    return value


def _list(value: Any) -> list[Any]:
    _check(isinstance(value, list), "a list")
    assert isinstance(value, list)
    return value


def _texts(body: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        value = body.get(key)
        _check(isinstance(value, str) and len(value) <= _MOST_TEXT, f"`{key[:100]}`")


def _optional_texts(body: Mapping[str, Any], *keys: str) -> None:
    _texts(body, *(key for key in keys if key in body))


def _number(value: Any, key: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    _check(is_number and abs(value) < 1e18, f"`{key}`")
