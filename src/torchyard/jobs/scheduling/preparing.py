"""Prepare what a job needs before it holds nodes: its environment and its inputs.

Owns: running builds and fetches, at most one for each environment and job.
Leaves: building to environments/, fetching to files/inputs.py, nodes to claiming.py.
Always: heavy work happens outside transactions; what a killed server had begun is started again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from torchyard.base.documents import secret_variables
from torchyard.base.errors import DatabaseUnreachable, TorchyardError
from torchyard.data import datastores, remote
from torchyard.data.fetching import FetchCanceled
from torchyard.environments.types import BuildCanceled, EnvironmentSpec
from torchyard.environments.types import from_json as environment_from_json
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.jobs.actions import job_key
from torchyard.jobs.files import build_logs, inputs
from torchyard.jobs.records import isolation, progress, round_store, store
from torchyard.jobs.records.types import CommandJob, Job, JobError, Stage, Status, parse_job
from torchyard.jobs.services import Services
from torchyard.jobs.spec import interactive_services

_log = logging.getLogger(__name__)
# A round ends after this time or this many jobs, so that prepared jobs may start.
_RUNNER_AGAIN_S = 1.0
_ROUND = timedelta(seconds=0.5)
_BUILDERS = 2
_MOST = 1000
_ALL = 1 << 31


class Preparer:
    """Two builders and four fetchers."""

    def __init__(self, services: Services, stopping: threading.Event) -> None:
        self._services = services
        self._stopping = stopping
        # By environment that is to be built, where its part of the log begins.
        self._building: dict[str, int] = {}
        # Those of them whose build has begun.
        self._begun: set[str] = set()
        self._building_lock = threading.Lock()
        self._fetching: set[int] = set()
        # By the key of a job that was queued in this round: how often it had been notified then.
        self._queued: dict[str, int] = {}
        # The environments that services need beside those of jobs; why one can't be built.
        self._layers: set[str] = set()
        self._without: dict[str, str] = {}
        self._builders = ThreadPoolExecutor(_BUILDERS, thread_name_prefix="builder")
        self._fetchers = ThreadPoolExecutor(4, thread_name_prefix="fetcher")

    def close(self) -> None:
        """Wait for running work; it cancels itself once the scheduler stops."""
        self._builders.shutdown(wait=True, cancel_futures=True)
        self._fetchers.shutdown(wait=True, cancel_futures=True)

    def prepare(self) -> None:
        """One round; jobs that wait for the same environment are handled together."""
        until = self._services.clock.now() + _ROUND
        with self._services.db.read() as connection:
            waiting_environments = round_store.environments_wanted(connection)
        for waiting in waiting_environments:
            with self._services.db.read() as connection:
                pinned = store.environment_of(connection, waiting.first_id)
            environment = environment_from_json(pinned)
            built = self._services.environments.folders.find(environment) is not None
            for job in self._next(waiting, None if built else Status.NOT_STARTED):
                try:
                    self._prepare_one(job, environment, built)
                except Exception as error:
                    self._refuse(job, error)
                if self._services.clock.now() > until:
                    # Jobs that are queued by now may start meanwhile.
                    self._services.wakeup.set()
                    return
            if not built:
                self._start_build(environment)

    def tell_queued(self) -> None:
        """Notify of jobs that wait for nodes; jobs that got nodes at once were notified before."""
        for key, count in self._queued.items():
            if self._services.signals.count(key) == count:
                self._services.signals.notify(key)
        self._queued.clear()

    def _prepare_one(self, job: Job, environment: EnvironmentSpec, built: bool) -> None:
        if not built:
            self._build(job, environment)
            return
        parsed = parse_job(job)
        layer = self._missing_layer(parsed, environment)
        if layer is not None:
            self._build(job, layer)
        elif self._has_inputs(parsed):
            self._keep_log(job)
            self._prepared(job.id)
        else:
            self._fetch(parsed)

    def _missing_layer(
        self, job: CommandJob, environment: EnvironmentSpec
    ) -> EnvironmentSpec | None:
        """The environment that the job's services need beside its own, where it is to be built."""
        if not interactive_services.needs_layer(job.spec.services):
            return None
        environments = self._services.environments
        python = environments.folders.python_of(environment)
        layer = environments.resolver.resolve(interactive_services.layer(python))
        if layer.hash in self._without or environments.folders.find(layer) is not None:
            return None
        self._layers.add(layer.hash)
        return layer

    def _refuse(self, job: Job, error: Exception) -> None:
        """Fail the job that caused an error; other errors are raised."""
        if not isolation.is_job_error(error):
            raise error
        _log.error("job %s cannot be prepared", job.name, exc_info=error)
        self._fail(job, JobError("internal", f"the job cannot be prepared: {error!r}"))

    def _next(self, environment: round_store.Waiting, status: Status | None) -> Iterator[Job]:
        """Yield the jobs of one environment that can be advanced now."""
        with self._services.db.read() as connection:
            ids = round_store.to_prepare(
                connection, environment.environment_hash, _MOST + len(self._fetching), status
            )
        for job_id in ids:
            if job_id not in self._fetching:
                with self._services.db.read() as connection:
                    job = store.job_if_any(connection, job_id)
                if job is not None:
                    yield job

    def _prepared(self, job_id: int) -> None:
        services = self._services
        with services.db.write() as connection:
            job = store.job_by_id(connection, job_id)
            if job.status not in (Status.NOT_STARTED, Status.PREPARING):
                return
            now = services.clock.now()
            if job.status is Status.NOT_STARTED:
                progress.move(connection, job, Status.PREPARING, now)
                progress.start_stage(connection, job, Stage.PREPARING, now)
                job = store.job_by_id(connection, job_id)
            progress.start_stage(connection, job, Stage.SCALING, now)
            progress.move(connection, job, Status.QUEUED, now)
        self._queued[job_key(job)] = services.signals.count(job_key(job))

    def _keep_log(self, job: Job) -> None:
        """Before it moves on; a job that never waited was never in Preparing for a build."""
        if job.status is Status.PREPARING:
            build_logs.keep(self._services, job)

    def _build(self, job: Job, environment: EnvironmentSpec) -> None:
        services = self._services
        with self._building_lock:
            # The log grows over builds; where this one's part begins is what its jobs show.
            log_offset = self._building.get(
                environment.hash, _size(services.environments.folders.log_path(environment.hash))
            )
            others = self._builds_before(environment)
        if job.status is Status.NOT_STARTED:
            with services.db.write() as connection:
                current = store.job_by_id(connection, job.id)
                if current.status is Status.NOT_STARTED:
                    now = services.clock.now()
                    progress.move(connection, current, Status.PREPARING, now)
                    progress.start_preparing(connection, current, now, log_offset, others)
            services.signals.notify(job_key(job))
            with self._building_lock:
                has_begun = environment.hash in self._begun
            if others and has_begun:
                self._tell_begun([job], log_offset)
        self._start_build(environment)

    def _builds_before(self, environment: EnvironmentSpec) -> int:
        """How many builds its own waits for, 0 when it begins at once; with the lock held."""
        if environment.hash in self._begun:
            return 0
        hashes = list(self._building)
        before = hashes.index(environment.hash) if environment.hash in hashes else len(hashes)
        return before if before >= _BUILDERS else 0

    def _start_build(self, environment: EnvironmentSpec) -> None:
        with self._building_lock:
            running = environment.hash in self._building
            if not running:
                size = _size(self._services.environments.folders.log_path(environment.hash))
                self._building[environment.hash] = size
        if not running:
            self._builders.submit(self._build_now, environment)

    def _tell_begun(self, jobs: Sequence[Job], log_offset: int) -> None:
        """To jobs that were told that the build waits for others."""
        services = self._services
        for job in jobs:
            with services.db.write() as connection:
                current = store.job_if_any(connection, job.id)
                if current is None or current.status is not Status.PREPARING:
                    continue
                now = services.clock.now()
                begins_again = progress.build_began(connection, current, now, log_offset)
            if begins_again:
                services.signals.notify(job_key(job))

    def _build_now(self, environment: EnvironmentSpec) -> None:
        with self._building_lock:
            self._begun.add(environment.hash)
            log_offset = self._building[environment.hash]
        try:
            self._tell_begun(self._preparing(environment), log_offset)
            self._services.environments.builds.run(
                environment,
                lambda: self._unwanted(environment),
                lambda: self.secrets(environment),
            )
            self._tell_python(environment)
        except BuildCanceled:
            pass  # no job wanted it any more; the next round handles new ones
        except DatabaseUnreachable:
            pass  # the next round starts again
        except RunnerUnreachable:
            self._stopping.wait(_RUNNER_AGAIN_S)  # as above: it was killed, or is started again
        except TorchyardError as error:
            self._build_failed(environment, error)
        except Exception as error:
            _log.exception("the build of %s failed", environment.hash)
            self._build_failed(environment, JobError("internal", f"the builder failed: {error!r}"))
        finally:
            with self._building_lock:
                self._building.pop(environment.hash, None)
                self._begun.discard(environment.hash)
            self._services.wakeup.set()

    def _tell_python(self, environment: EnvironmentSpec) -> None:
        """To the jobs that waited for a build that took another Python than the one tried first.

        Later ones have it from their submission.
        """
        services = self._services
        taken = services.environments.folders.taken_python(environment)
        if taken is None:
            return
        for job in self._preparing(environment):
            with services.db.write() as connection:
                progress.notice_once(connection, job, taken.notice, services.clock.now())
            services.signals.notify(job_key(job))

    def _preparing(self, environment: EnvironmentSpec) -> list[Job]:
        """The jobs that wait for this environment."""
        with self._services.db.read() as connection:
            ids = round_store.to_prepare(connection, environment.hash, _ALL, Status.PREPARING)
            return [store.job_by_id(connection, job_id) for job_id in ids]

    def secrets(self, environment: EnvironmentSpec) -> dict[str, int]:
        """The secrets of the waiting jobs, and of the datastores in their workspaces."""
        values: dict[str, int] = {}
        waiting = self._preparing(environment)
        for job in waiting:
            values |= secret_variables.values(job.document)
        for workspace in {job.workspace for job in waiting}:
            for datastore in datastores.list_in(
                self._services.db, self._services.datastores, workspace
            ):
                values |= remote.secrets_of(datastore.options)
        return values

    def _unwanted(self, environment: EnvironmentSpec) -> bool:
        if self._stopping.is_set():
            return True
        if environment.hash in self._layers:
            return False
        with self._services.db.read() as connection:
            return not round_store.to_prepare(connection, environment.hash, 1, Status.PREPARING)

    def _build_failed(self, environment: EnvironmentSpec, error: TorchyardError | JobError) -> None:
        if environment.hash in self._layers:
            # Jobs run without it, and their services say that it is missing.
            self._without[environment.hash] = error.message
            _log.warning("the environment of services can't be built: %s", error.message)
        for job in self._preparing(environment):
            build_logs.keep(self._services, job)
            self._fail(job, error)

    def _fail(self, job: Job, error: TorchyardError | JobError) -> None:
        with self._services.db.write() as connection:
            current = store.job_by_id(connection, job.id)
            if current.status in (Status.NOT_STARTED, Status.PREPARING):
                now = self._services.clock.now()
                progress.end(connection, current, Status.FAILED, now, error=error)
        self._services.signals.notify(job_key(job))

    def _has_inputs(self, job: CommandJob) -> bool:
        if job.id in self._fetching:
            return False
        try:
            return inputs.are_ready(self._services, job)
        except TorchyardError:
            return False  # the fetch says why

    def _fetch(self, job: CommandJob) -> None:
        if job.id in self._fetching:
            return
        services = self._services
        with services.db.write() as connection:
            current = store.job_by_id(connection, job.id)
            # A job that waited for its environment stays in the same stage.
            if current.status is Status.NOT_STARTED:
                now = services.clock.now()
                progress.move(connection, current, Status.PREPARING, now)
                waited_for = inputs.describe(job)
                progress.start_stage(connection, current, Stage.PREPARING, now, waited_for)
        services.signals.notify(job_key(job))
        self._fetching.add(job.id)
        self._fetchers.submit(self._fetch_now, job)

    def _fetch_now(self, job: CommandJob) -> None:
        try:
            self._fetch_inputs(job)
        finally:
            self._fetching.discard(job.id)
            self._services.wakeup.set()

    def _fetch_inputs(self, job: CommandJob) -> None:
        try:
            inputs.bring(
                self._services, job, lambda: self._stopping.is_set() or self._has_ended(job)
            )
        except FetchCanceled:
            pass
        except DatabaseUnreachable:
            pass  # the next round starts again
        except RunnerUnreachable:
            self._stopping.wait(_RUNNER_AGAIN_S)  # as above, and it concerns all jobs
        except TorchyardError as error:
            self._fail(job, error)
        except Exception as error:
            _log.exception("the inputs of %s could not be fetched", job.name)
            self._fail(job, JobError("internal", f"the inputs could not be fetched: {error!r}"))

    def _has_ended(self, job: Job) -> bool:
        with self._services.db.read() as connection:
            return store.job_by_id(connection, job.id).status.ended


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
