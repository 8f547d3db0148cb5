"""Sweeps of the workspace, over HTTP.

Owns: which request each verb is.
Leaves: a sweep's document and what is read of its trials to trials/; submitting, streaming,
    canceling and deleting to jobs.py: a sweep is a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client.job import Job, job_from_json
from torchyard.client.resources import Listing
from torchyard.client.times import Duration
from torchyard.client.trials.trials import Rung, SweepTrials, rungs_from_json

if TYPE_CHECKING:
    from torchyard.client.command_jobs import CommandJob
    from torchyard.client.jobs import Jobs


class Sweeps:
    """Sweeps: one command many times with different parameters, and its trials.

    Example::

        job = command(command="python train.py ${{search_space.lr}}", environment="python")
        space = {"lr": "loguniform:1e-5,1e-1"}
        sweep = client.sweeps.create(job, space, "minimize:loss", trials=40, concurrent=4)
        sweep.wait().trials().to_pandas()
    """

    def __init__(self, transport: Transport, workspace_path: str, jobs: Jobs) -> None:
        self._transport, self._workspace_path, self._jobs = transport, workspace_path, jobs

    def create(
        self,
        job: CommandJob,
        space: Mapping[str, str | Mapping[str, Any]],
        goal: str,
        *,
        trials: int,
        concurrent: int | None = None,
        algorithm: str = "random",
        seed: int | None = None,
        early_termination: Mapping[str, Any] | str | None = None,
        timeout: Duration | None = None,
        name: str = "",
    ) -> Job:
        """Submit a sweep over `job`, which stays as it is; the arguments are those of `job.sweep`.

        Args:
            space: ranges of the values themselves, `"loguniform:1e-5,1e-1"`,
                `"choice:sgd,adam"`, or mappings as in a sweep's file.
            name: of the sweep; generated when empty.

        Raises:
            InvalidInput: a range, the goal, the policy or the job is not valid.
            Conflict: a job has this name.
        """
        sweep = job.sweep(
            space,
            goal,
            trials=trials,
            concurrent=concurrent,
            algorithm=algorithm,
            seed=seed,
            early_termination=early_termination,
            timeout=timeout,
        )
        return self._jobs.create(sweep, name=name)

    def extend(self, name: str, max_total_trials: int) -> Job:
        """Let a sweep go on up to so many trials in all, also one that has ended.

        Raises:
            NotFound: no job has this name.
            Conflict: it may have as many already, or is ending.
        """
        body = {"max_total_trials": max_total_trials}
        answer = self._transport.post(f"{self._path(name)}/extend", body)
        return job_from_json(answer, self._jobs)

    def trials(self, name: str) -> SweepTrials:
        """The trials of a sweep, with its best one.

        Raises:
            NotFound: no job has this name.
            InvalidInput: it is not a sweep.

        Example::

            client.sweeps.trials("tuning").best.parameters
        """
        return self._jobs.trials(name)

    def trials_csv(self, name: str) -> bytes:
        """The trials of a sweep as CSV: a row a trial, a column a parameter and a metric.

        Raises:
            NotFound: no job has this name.
            InvalidInput: it is not a sweep.
        """
        with self._transport.stream(f"{self._path(name)}/trials.csv") as response:
            return response.read()

    def rungs(self, name: str) -> Listing[Rung]:
        """What became of a sweep's trials at the rungs of ASHA or Hyperband, by bracket and
        interval, the best first; empty for a sweep with another policy.

        Raises:
            NotFound: no job has this name.
            InvalidInput: it is not a sweep.

        Example::

            [rung.trial for rung in client.sweeps.rungs("tuning") if rung.decision == "promoted"]
        """
        return rungs_from_json(self._transport.get(f"{self._path(name)}/rungs"))

    def importances(self, name: str) -> tuple[dict[str, float], str]:
        """How much each parameter of a sweep matters, the most first; and why there is none."""
        answer = self._transport.get(f"{self._path(name)}/importances")
        return {key: float(value) for key, value in answer["value"].items()}, answer["missing"]

    def _path(self, name: str) -> str:
        return f"{self._workspace_path}/sweeps/{quote(name, safe='')}"
