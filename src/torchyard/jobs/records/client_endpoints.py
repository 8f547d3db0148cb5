"""The environment variables that lead other clients, such as Azure's SDK, to the server.

Owns: where a protocol registers them, because lower packages can't import the protocol's.
Leaves: which variables those are to azureml/job_variables.py, a node's own to
worker/launch/variables.py.
Always: without a protocol there are none, and jobs run all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchyard.jobs.records.types import Job

Variables = Callable[[Job, str, Path | None], dict[str, str]]
"""From a job, its run token and its environment's folder, None without one, to variables; empty
while the endpoint is closed."""

Expect = Callable[[Path], None]
"""Opens the endpoint when the environment in this folder holds such a client."""


class ClientEndpoints:
    """Empty until a protocol registers its endpoint."""

    def __init__(self) -> None:
        self._variables: Variables | None = None
        self._expect: Expect | None = None

    def open(self, variables: Variables, expect: Expect | None = None) -> None:
        self._variables, self._expect = variables, expect

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
