"""What in a job's environment leads foreign clients to the server.

Owns: the place where a protocol's room leaves it, for rooms below it can't ask it.
Leaves: which variables those are to azureml/job_variables.py, a node's own to
worker/launch/variables.py.
Always: without a protocol there are none, and a job runs as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchyard.jobs.records.types import Job

Variables = Callable[[Job, str], dict[str, str]]
"""From a job and its run token to variables; empty while foreign clients can't come in."""

Expect = Callable[[Path], None]
"""From the folder of an environment to a way in, where it holds a foreign client."""


class ClientEndpoints:
    """Shut until a protocol opens it."""

    def __init__(self) -> None:
        self._variables: Variables | None = None
        self._expect: Expect | None = None

    def open(self, variables: Variables, expect: Expect | None = None) -> None:
        self._variables, self._expect = variables, expect

    def expect(self, environment: Path) -> None:
        """A job is about to be launched with this environment."""
        if self._expect is not None:
            self._expect(environment)

    def variables(self, job: Job, run_token: str) -> dict[str, str]:
        return {} if self._variables is None else self._variables(job, run_token)
