"""The environment variables that lead other clients, such as Azure's SDK, to the server.

Owns: where a protocol registers them, because lower packages can't import the protocol's.
Leaves: which variables those are to azureml/job_variables.py, a node's own to
worker/launch/variables.py.
Always: without a protocol there are none, and jobs run all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.jobs.records.types import Job
from torchyard.shared.plan import GatePlan

Variables = Callable[[Job, str, Path | None], dict[str, str]]
"""From a job, its run token and its environment's folder, None without one, to variables; empty
while the endpoint is closed."""


@dataclass(frozen=True)
class NodeEndpoints:
    """For nodes of other machines: variables, and the gate that they lead through, if any."""

    variables: dict[str, str] = field(default_factory=dict)
    gate: GatePlan | None = None


NodeVariables = Callable[[Job, str, Path | None, Sequence[str]], NodeEndpoints]
"""As `Variables`, with the addresses at which nodes look for the server."""

Expect = Callable[[Path], None]
"""Opens the endpoint when the environment in this folder holds such a client."""


class ClientEndpoints:
    """Empty until a protocol registers its endpoint."""

    def __init__(self) -> None:
        self._variables: Variables | None = None
        self._for_nodes: NodeVariables | None = None
        self._expect: Expect | None = None

    def open(
        self,
        variables: Variables,
        for_nodes: NodeVariables | None = None,
        expect: Expect | None = None,
    ) -> None:
        self._variables, self._for_nodes, self._expect = variables, for_nodes, expect

    def expect(self, environment: Path) -> None:
        """A job is about to be launched with this environment."""
        if self._expect is not None:
            self._expect(environment)

    def variables(
        self, job: Job, run_token: str, environment: Path | None = None
    ) -> dict[str, str]:
        if self._variables is None:
            return {}
        return self._variables(job, run_token, environment)

    def for_nodes(
        self, job: Job, run_token: str, environment: Path | None, urls: Sequence[str]
    ) -> NodeEndpoints:
        """Of a job whose nodes are on other machines, and find the server at `urls`."""
        if self._for_nodes is None:
            return NodeEndpoints()
        return self._for_nodes(job, run_token, environment, urls)
