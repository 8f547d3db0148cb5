"""The services of running jobs, over HTTP.

Owns: one service on one node, as the server told of it.
Leaves: requests to jobs.py.
Always: a link is good once, and for a minute.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.client.resources import Json, Resource


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JobService(Resource):
    """A program beside the ranks of a job. `state` is Starting, Running, Failed or Ended;
    `message` says why. `endpoint` is its address once somebody has opened one of them.
    """

    name: str
    type: str
    node: int
    state: str
    message: str
    endpoint: str

    _shown = ("name", "type", "node", "state", "endpoint")


def service_from_json(raw: Json) -> JobService:
    return JobService(
        raw=raw,
        name=raw["name"],
        type=raw["type"],
        node=raw["node"],
        state=raw["state"],
        message=raw["message"],
        endpoint=raw["endpoint"],
    )
