"""Pick the next queued job and start it.

Owns: preparing environments and inputs, who gets nodes, launching, noticing lost workers.
Leaves: processes to executors/, slots to compute/, job rows to store.py through progress.py.
Always: environment and inputs are ready before nodes are held; nodes are held all or none, in
the order of submission at each cluster; heavy work happens outside transactions; whatever a
server that was killed had begun is taken up again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

from torchyard.base import disk
from torchyard.base.errors import DatabaseAway, TorchyardError
from torchyard.compute import actions as computes
from torchyard.data.fetching import FetchCanceled
from torchyard.environments.types import BuildCanceled, EnvironmentSpec
from torchyard.environments.types import from_json as environment_from_json
from torchyard.executors.executor import Executor, Handle
from torchyard.jobs import (
    attempts,
    inputs,
    planner,
    progress,
    removal,
    retention,
    scratch,
    spec,
    store,
    worker_history,
)
from torchyard.jobs.actions import job_key
from torchyard.jobs.heartbeats import Heartbeats
from torchyard.jobs.room import Room
from torchyard.jobs.types import Attempt, Job, JobError, Stage, Status
from torchyard.plan import LaunchPlan
from torchyard.workspaces import actions as workspaces

_log = logging.getLogger(__name__)
_RETENTION_EVERY = timedelta(hours=1)


class Scheduler:
    """One thread that looks when it is woken, and once a second anyway.

    Attributes:
        trouble: what went wrong in the last round, empty when nothing did.
    """

    def __init__(self, room: Room, executor: Executor, server_url: str, every_s: float = 1.0):
        self._room = room
        self._executor = executor
        self._server_url = server_url
        self._every_s = every_s
        self._heartbeats = Heartbeats(room, executor)
        self._stopping = threading.Event()
        self._building: dict[str, int] = {}
        self._building_lock = threading.Lock()
        self._fetching: set[int] = set()
        self._inherited: set[str] = set()
        self._broken_history: set[tuple[str, int]] = set()
        self._fetchers = ThreadPoolExecutor(4, thread_name_prefix="fetcher")
        self._forgetter = ThreadPoolExecutor(1, thread_name_prefix="forgetter")
        self._forgetting: Future[None] | None = None
        self._retention_at: datetime | None = None
        self._builders = ThreadPoolExecutor(2, thread_name_prefix="builder")
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; running jobs go on, builds are broken off and taken up again later."""
        self._stopping.set()
        self._room.bell.set()
        self._thread.join(10)
        self._forgetter.shutdown(wait=True, cancel_futures=True)
        self._builders.shutdown(wait=True, cancel_futures=True)
        self._fetchers.shutdown(wait=True, cancel_futures=True)

    def look(self) -> None:
        """One round of everything; what fails is told, and holds up nothing else."""
        trouble = ""
        parts = (
            *(self._prepare, self._claim, self._watch),
            *(self._listen, self._clean, self._forget),
        )
        for part in parts:
            try:
                part()
            except DatabaseAway as error:
                trouble = error.message
                if trouble != self.trouble:
                    why = str(error.__cause__).partition("\n")[0]
                    _log.warning("%s: %s", trouble, why)
                break
            except Exception as error:
                full = disk.meaning(error)
                if full is not None:
                    trouble = full.message
                    if trouble != self.trouble:
                        _log.warning("%s: %r", trouble, error)
                    continue
                _log.exception("the scheduler failed at %s; the next round comes", part.__name__)
                trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
        self.trouble = trouble

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._room.bell.clear()
            self.look()
            self._room.bell.wait(self._every_s)

    # Preparing

    def _prepare(self) -> None:
        with self._room.db.read() as connection:
            waiting = store.jobs_in(connection, [Status.NOT_STARTED, Status.PREPARING])
            environments = {job.id: store.environment_of(connection, job.id) for job in waiting}
        for job in waiting:
            environment = environment_from_json(environments[job.id])
            if self._room.environments.is_built(environment) is None:
                self._build(job, environment)
            elif self._has_inputs(job):
                self._prepared(job.id)
            else:
                self._fetch(job)

    def _prepared(self, job_id: int) -> None:
        room = self._room
        with room.db.write() as connection:
            job = store.job_by_id(connection, job_id)
            if job.status not in (Status.NOT_STARTED, Status.PREPARING):
                return
            now = room.clock.now()
            if job.status is Status.NOT_STARTED:
                progress.move(connection, job, Status.PREPARING, now)
                progress.start_stage(connection, job, Stage.PREPARING, now)
                job = store.job_by_id(connection, job_id)
            progress.start_stage(connection, job, Stage.SCALING, now)
            progress.move(connection, job, Status.QUEUED, now)
        room.signals.notify(job_key(job))

    def _build(self, job: Job, environment: EnvironmentSpec) -> None:
        room = self._room
        with self._building_lock:
            # The log grows over builds; where this one's part begins is what its jobs show.
            log_offset = self._building.get(
                environment.hash, _size(room.environments.log_path(environment))
            )
        if job.status is Status.NOT_STARTED:
            with room.db.write() as connection:
                current = store.job_by_id(connection, job.id)
                if current.status is Status.NOT_STARTED:
                    now = room.clock.now()
                    progress.move(connection, current, Status.PREPARING, now)
                    progress.start_preparing(connection, current, now, log_offset)
            room.signals.notify(job_key(job))
        with self._building_lock:
            running = environment.hash in self._building
            self._building.setdefault(environment.hash, log_offset)
        if not running:
            self._builders.submit(self._build_now, environment)

    def _build_now(self, environment: EnvironmentSpec) -> None:
        try:
            self._room.environments.build(environment, lambda: self._unwanted(environment))
        except BuildCanceled:
            pass  # nobody wanted it; who has come since is looked after by the next round
        except DatabaseAway:
            pass  # the next round begins anew
        except TorchyardError as error:
            self._build_failed(environment, error)
        except Exception as error:
            _log.exception("the build of %s failed", environment.hash)
            self._build_failed(environment, JobError("internal", f"the builder failed: {error!r}"))
        finally:
            with self._building_lock:
                self._building.pop(environment.hash, None)
            self._room.bell.set()

    def _preparing(self, environment: EnvironmentSpec) -> list[Job]:
        """The jobs that wait for this environment."""
        with self._room.db.read() as connection:
            return [
                job
                for job in store.jobs_in(connection, [Status.PREPARING])
                if environment_from_json(store.environment_of(connection, job.id)).hash
                == environment.hash
            ]

    def _unwanted(self, environment: EnvironmentSpec) -> bool:
        return self._stopping.is_set() or not self._preparing(environment)

    def _build_failed(self, environment: EnvironmentSpec, error: TorchyardError | JobError) -> None:
        for job in self._preparing(environment):
            with self._room.db.write() as connection:
                current = store.job_by_id(connection, job.id)
                if current.status is Status.PREPARING:
                    now = self._room.clock.now()
                    progress.end(connection, current, Status.FAILED, now, error=error)
            self._room.signals.notify(job_key(job))

    def _has_inputs(self, job: Job) -> bool:
        if job.id in self._fetching:
            return False
        try:
            return inputs.are_ready(self._room, job)
        except TorchyardError:
            return False  # the fetch says why

    def _fetch(self, job: Job) -> None:
        if job.id in self._fetching:
            return
        room = self._room
        with room.db.write() as connection:
            current = store.job_by_id(connection, job.id)
            # A job that waited for its environment goes on in the same stage.
            if current.status is Status.NOT_STARTED:
                now = room.clock.now()
                progress.move(connection, current, Status.PREPARING, now)
                waited_for = inputs.describe(spec.read(job.spec))
                progress.start_stage(connection, current, Stage.PREPARING, now, waited_for)
        room.signals.notify(job_key(job))
        self._fetching.add(job.id)
        self._fetchers.submit(self._fetch_now, job)

    def _fetch_now(self, job: Job) -> None:
        try:
            self._bring(job)
        finally:
            self._fetching.discard(job.id)
            self._room.bell.set()

    def _bring(self, job: Job) -> None:
        error: TorchyardError | JobError | None = None
        try:
            inputs.bring(self._room, job, lambda: self._stopping.is_set() or self._has_ended(job))
        except FetchCanceled:
            pass
        except DatabaseAway:
            return  # the next round begins anew
        except TorchyardError as failure:
            error = failure
        except Exception as failure:
            _log.exception("the inputs of %s could not be fetched", job.name)
            error = JobError("internal", f"the inputs could not be fetched: {failure!r}")
        if error is not None:
            with self._room.db.write() as connection:
                current = store.job_by_id(connection, job.id)
                if current.status is Status.PREPARING:
                    now = self._room.clock.now()
                    progress.end(connection, current, Status.FAILED, now, error=error)
            self._room.signals.notify(job_key(job))

    def _has_ended(self, job: Job) -> bool:
        with self._room.db.read() as connection:
            return store.job_by_id(connection, job.id).status.ended

    # Claiming and launching

    def _claim(self) -> None:
        stuck: set[int] = set()
        while not self._stopping.is_set():
            with self._room.db.read() as connection:
                waiting = store.queue_heads(connection, self._room.clock.now())
                heads = [job for job in waiting if job.id not in stuck]
            if not heads:
                return
            for head in heads:
                attempt = self._claim_one(head)
                if attempt is None:
                    stuck.add(head.id)
                else:
                    self._launch(attempt)

    def _claim_one(self, job: Job) -> Attempt | None:
        room = self._room
        with room.db.write() as connection:
            job = store.job_by_id(connection, job.id)
            if job.status is not Status.QUEUED:
                return None
            # What an earlier attempt left is brought into the store when it is cleaned up.
            if not all(before.clean for before in store.attempts_of(connection, job.id)):
                return None
            now = room.clock.now()
            attempt = Attempt(
                id=uuid.uuid4().hex,
                job_id=job.id,
                workspace=job.workspace,
                job_name=job.name,
                number=job.attempt + 1,
                node_count=job.node_count,
                created_at=now,
            )
            why_not = computes.try_hold(
                connection,
                job.workspace,
                job.compute,
                job.node_count,
                attempt.id,
                job.avoided_slots or (),
            )
            if why_not:
                return None
            store.add_attempt(connection, attempt)
            store.change_job(connection, job.id, attempt=attempt.number)
            progress.start_stage(connection, job, Stage.RUNNING, now)
            progress.move(connection, job, Status.STARTING, now)
        room.signals.notify(job_key(job))
        return attempt

    def _launch(self, attempt: Attempt) -> None:
        """Also one that a killed server was about to launch."""
        try:
            handle = self._executor.launch(self._plan(attempt))
        except DatabaseAway:
            raise  # it is still to be launched, and the next round does
        except Exception as error:
            if disk.meaning(error) is not None:
                raise  # so is this one
            _log.exception("attempt %s could not be launched", attempt.id)
            message = f"the job could not be launched: {error}"
            attempts.fail(
                self._room, attempt, JobError("launch_failed", message, "see `yard server logs`")
            )
            return
        self._keep(attempt, handle)

    def _inherit(self, attempt: Attempt) -> Handle:
        """Have what workers that died left delivered; that needs neither environment nor inputs."""
        handle = self._executor.inherit(self._plan(attempt, of_heir=True))
        self._keep(attempt, handle)
        return handle

    def _keep(self, attempt: Attempt, handle: Handle) -> None:
        with self._room.db.write() as connection:
            store.change_attempt(connection, attempt.id, handle=handle.to_json())

    def _plan(self, attempt: Attempt, of_heir: bool = False) -> LaunchPlan:
        room = self._room
        workspace = workspaces.get(room.db, attempt.workspace)
        with room.db.read() as connection:
            job = store.job_by_id(connection, attempt.job_id)
            environment = environment_from_json(store.environment_of(connection, job.id))
        given = {} if of_heir else inputs.plans(room, job, spec.read(job.spec))
        folder = None if of_heir else room.environments.use(environment)
        assert folder is not None or of_heir
        with room.db.write() as connection:
            return planner.plan(
                connection, room, workspace, job, attempt, folder, given, self._server_url
            )

    # Watching

    def _watch(self) -> None:
        with self._room.db.read() as connection:
            running = store.open_attempts(connection)
        for attempt in running:
            if attempt.handle is None:
                self._launch(attempt)
                continue
            status = self._executor.status(Handle.from_json(attempt.handle))
            # Done already, unless the server was killed between the last report and the end.
            attempts.finish(self._room, attempt.id)
            for node, state in enumerate(status.nodes):
                if state in ("ending", "lost"):
                    attempts.orphan(self._room, attempt.id, node)
            if status.state == "lost" and attempt.id not in self._inherited:
                # Nobody tells of it any more: an heir is started, which delivers what is left.
                self._inherited.add(attempt.id)
                status = self._executor.status(self._inherit(attempt))
            for node, state in enumerate(status.nodes):
                # A worker leaves only after its last report was taken, so one that is gone
                # while the store says otherwise is lost.
                if state in ("exited", "lost"):
                    self._take_history(attempt, node)
                    attempts.lose(self._room, attempt.id, node)

    def _listen(self) -> None:
        self._heartbeats.look()

    # Cleaning

    def _clean(self) -> None:
        """Remove what ended attempts left on the nodes, once no worker is there any more."""
        with self._room.db.read() as connection:
            left = store.unclean_attempts(connection)
        for attempt in left:
            if attempt.handle is not None:
                handle = Handle.from_json(attempt.handle)
                if not self._executor.status(handle).over:
                    continue
            taken = [self._take_history(attempt, node) for node in range(attempt.node_count)]
            if all(taken):
                scratch.clear(self._room, attempt)
                # A job that is to be tried again waits for this.
                self._room.bell.set()

    def _take_history(self, attempt: Attempt, node: int) -> bool:
        """Whether nothing of a node's run history is left; else its folder has to stay."""
        if (attempt.id, node) in self._broken_history:
            return False
        try:
            worker_history.take_left(self._room, attempt, node)
        except DatabaseAway:
            raise
        except Exception:
            # The job's end must not wait for it; another server, which knows better, tries again.
            _log.exception("what node %d of attempt %s had logged stays there", node, attempt.id)
            self._broken_history.add((attempt.id, node))
            return False
        return True

    # Forgetting

    def _forget(self) -> None:
        """Go on with deletions, and now and then see whose time is over, beside all else."""
        if self._forgetting is not None and not self._forgetting.done():
            return
        now = self._room.clock.now()
        over = self._retention_at is None or now >= self._retention_at
        if over:
            self._retention_at = now + _RETENTION_EVERY
            over = retention.is_set(self._room)
        if over or removal.is_due(self._room):
            self._forgetting = self._forgetter.submit(self._forget_now, over)

    def _forget_now(self, look: bool) -> None:
        try:
            if look:
                retention.look(self._room)
            removal.work(self._room, self._stopping.is_set)
        except DatabaseAway:
            pass  # the next round begins anew
        except Exception:
            _log.exception("jobs could not be deleted; it is tried again")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
