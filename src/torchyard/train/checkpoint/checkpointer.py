"""Checkpoints of one training: what users call.

Owns: the order of copying, handing over, choosing and loading.
Leaves: each of these to the module of its name.
Always: a call that can't succeed says what is missing, in its own time limit.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.train import run
from torchyard.train.checkpoint import folders, loading, ranks, resumption
from torchyard.train.checkpoint.commits import Commit, SaveRequest
from torchyard.train.checkpoint.errors import CheckpointError, NonFiniteState
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.checkpoint.ranks import Group
from torchyard.train.checkpoint.retention import Retention
from torchyard.train.checkpoint.staging import NoStagingMemory
from torchyard.train.checkpoint.states import PlannedState
from torchyard.train.checkpoint.writer_process import SaveState, WriterProcess

_LOG = logging.getLogger("torchyard.train")
_NONE = ""


def default_folder(variables: Mapping[str, str]) -> Path:
    """`checkpoints` below the job's outputs, or below ./outputs without the platform.

    Nodes of one machine share a folder, whose name the platform gives.
    """
    shared = variables.get("TORCHYARD_CHECKPOINTS")
    if shared:
        return Path(shared)
    return Path(variables.get("AZUREML_OUTPUT_DIRECTORY") or "outputs") / "checkpoints"


class Pending:
    """A checkpoint that is being written."""

    def __init__(self, step: int, state: SaveState) -> None:
        self.step = step
        self._state = state

    def done(self) -> bool:
        """Whether it is durable or has failed."""
        return self._state.finished.is_set()

    def wait(self, timeout_s: float | None = None) -> Path:
        """Return the checkpoint's folder when it is durable.

        Raises:
            CheckpointError: it could not be written; the message says why.
            TimeoutError: it is still being written after `timeout_s`.
        """
        if not self._state.finished.wait(timeout_s):
            raise TimeoutError(f"the checkpoint of step {self.step} is still being written")
        if self._state.error is not None:
            raise self._state.error
        assert self._state.path is not None
        return self._state.path


class Checkpointer:
    """Saves and loads checkpoints in one folder.

    Every rank of the process group makes one, after `init_process_group`. Where the ranks of
    several machines share no folder, each machine's holds what its ranks write.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep_best: int | None = None,
        best: str = "min",
        timeout_s: float = 120.0,
        staging_bytes: int | None = None,
        refuse_nan: bool = False,
    ) -> None:
        """Start no process yet; the first `save` does.

        Args:
            folder: by default `checkpoints` in the job's outputs, else ./outputs/checkpoints.
            keep_last: how many of the newest are kept; without any of the three, all are.
            keep_every: keep the steps that it divides.
            keep_best: keep so many with the best `metric`; `best` is "min" or "max".
            timeout_s: how long a rank waits for another one, in seconds.
            staging_bytes: the most host memory for one of the two copies, per rank.
            refuse_nan: raise `NonFiniteState` for NaN and infinity, before copying.
        """
        self._retention = Retention(keep_last, keep_every, keep_best, best)
        if timeout_s <= 0:
            raise CheckpointError(f"`timeout_s` must be positive, not {timeout_s!r}")
        self.folder = Path(folder or default_folder(os.environ)).absolute()
        self._timeout_s = timeout_s
        self._refuse_nan = refuse_nan
        # The same on every rank, where the folder itself may be another one.
        self._name = str(folder or "")
        self.ranks = ranks.current()
        self._group: Group | None = None
        self._session = _NONE
        self._calls = 0
        # Of saves of one step: every rank counts alike, also after one that failed on some.
        self._step, self._ordinal = -1, 0
        self._writer = WriterProcess(staging_bytes)
        # The first save of a state with this plan says which part of it a rank has to copy.
        self._planned: tuple[Any, SaveState] | None = None
        self._told_of_memory = False
        atexit.register(self._writer.close)

    def save(self, step: int, state: Mapping[str, Any], *, metric: float | None = None) -> Pending:
        """Copy `state` to host memory and write it in the background.

        Returns after the copy. Every rank passes its own state; what several ranks have is
        written by one of them. A failure is logged, and training goes on.

        Args:
            step: optimizer steps done, >= 0.
            state: modules, optimizers, anything with a `state_dict()`, tensors of any shape and
                dtype on any device (DTensors as well), and objects that pickle. An object that is
                a rank's own needs a key of its own.
            metric: what `keep_best` compares.

        Raises:
            CheckpointError: the step or state can't be saved, or rank 0 takes no part.
            NonFiniteState: with `refuse_nan`, values that are not finite. Nothing was copied.
        """
        _check_step(step)
        self._ordinal = self._ordinal + 1 if step == self._step else 0
        self._step = step
        planned = PlannedState(state, self.ranks.rank == 0)
        if self._refuse_nan and (names := planned.non_finite()):
            raise NonFiniteState(step, names)
        self._meet()
        self._session = self._session or self._agree("session", lambda: uuid.uuid4().hex[:12])
        share = self._share(planned)
        buffer = self._writer.free_buffer()
        try:
            staged = self._writer.buffers[buffer].copy(planned.items(share))
        except NoStagingMemory as error:
            return self._save_now(planned, step, metric, error)
        request = self._request(planned, step, metric, tuple(staged))
        save_state = self._writer.write(request, buffer, staged)
        if share is None:
            self._planned = (planned.plan, save_state)
        return Pending(step, save_state)

    def load(
        self,
        state: Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        strict: bool = True,
        optional: Sequence[str] = (),
    ) -> tuple[int, dict[str, Any]] | None:
        """Load the newest checkpoint, or that of `step`, on any number of ranks.

        Args:
            state: as for `save`; its modules, optimizers and tensors are changed in place.
                Without it, the whole state is returned as it was saved, on the CPU.
            step: without it, the newest checkpoint whose files are undamaged.
            strict: without it, keys that are missing or of another shape stay as they are.
            optional: keys of `state` that the checkpoint may lack.

        Returns:
            The step and the loaded state as dicts; None if there is no checkpoint.

        Raises:
            CheckpointMismatch: names every key that is missing or has another shape.
            CheckpointError: the step has no checkpoint, its format is newer, it is damaged, or the
                folder can't be read.

        Checkpoints hold pickled objects: load only those that you trust.
        """
        if step is not None:
            _check_step(step)
        self.wait()
        self._meet()
        chosen = self._agree("load", lambda: self._choose(step))
        if chosen == _NONE:
            return None
        info = folders.read_manifest(self.folder / chosen)
        if info is None:
            raise CheckpointError(
                f"rank 0 loads {chosen}, which rank {self.ranks.rank} does not find in "
                f"{self.folder}",
                "copy it there, or put checkpoints into a folder that all nodes share",
            )
        if self._meet().leader != 0:
            folders.verify(info)
        if state is None:
            loaded = loading.load_all(info)
        else:
            loaded = loading.load_into(state, info, strict, optional)
        if self.ranks.rank == 0:
            resumption.tell(info.step, info.saved_at)
        else:
            run.set_resumed(info.step)
        return info.step, loaded

    def list(self) -> tuple[CheckpointInfo, ...]:
        """Every whole checkpoint, in the order of their steps."""
        return tuple(self._checkpoints().values())

    def latest(self) -> int | None:
        """The step of the newest whole checkpoint, None without one."""
        return max(self._checkpoints(), default=None)

    def delete(self, step: int) -> None:
        """Delete the checkpoint of `step`; call it on one rank.

        Raises:
            CheckpointError: there is none.
        """
        if not folders.delete(self.folder, step):
            raise self._no_such_step(step)

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when everything that was saved is durable or has failed.

        Raises:
            TimeoutError: something is still being written after `timeout_s`.
        """
        if not self._writer.wait(timeout_s):
            raise TimeoutError(f"checkpoints are still being written after {timeout_s:g} s")

    def close(self) -> None:
        """Wait, then end the writer. It happens by itself when Python ends."""
        self._writer.close()
        atexit.unregister(self._writer.close)

    def _share(self, planned: PlannedState) -> tuple[int, ...] | None:
        """What of the plan has to be copied; None for all of it."""
        if self._planned is None or self._planned[0] != planned.plan:
            return None
        return self._planned[1].share if self._planned[1].path else None

    def _save_now(
        self, planned: PlannedState, step: int, metric: float | None, error: NoStagingMemory
    ) -> Pending:
        """Without a copy: training waits until the checkpoint is durable."""
        if not self._told_of_memory:
            self._told_of_memory = True
            _LOG.warning("checkpoints are written while training waits: %s", error)
        self._writer.wait()
        state = SaveState()
        everything = tuple(range(len(planned.plan.items)))
        request = self._request(planned, step, metric, everything)
        try:
            state.finish(Commit(request, planned.read, lambda text: _LOG.warning(text)).run().path)
        except CheckpointError as failure:
            _LOG.warning("%s", failure.message)
            state.finish(None, failure)
        return Pending(step, state)

    def _request(
        self, planned: PlannedState, step: int, metric: float | None, copied: tuple[int, ...]
    ) -> SaveRequest:
        return SaveRequest(
            folder=self.folder, step=step, session=self._session, rank=self.ranks.rank,
            world_size=self.ranks.world_size, timeout_s=self._timeout_s,
            saved_at=time.time_ns() // 1_000_000,
            metric=None if metric is None else float(metric), retention=self._retention,
            plan=planned.plan, copied=copied, ordinal=self._ordinal, **vars(self._meet()),
        )  # fmt: skip

    def _meet(self) -> Group:
        """Which ranks share this folder; found out once, by a call that all ranks make."""
        if self._group is None:
            self._group = Group()
            if self.ranks.store is not None:
                token = self._agree("rendezvous", lambda: uuid.uuid4().hex[:12])
                self._group = self.ranks.group(self.folder, token, self._timeout_s)
        return self._group

    def _checkpoints(self) -> dict[int, CheckpointInfo]:
        try:
            return folders.checkpoints(self.folder)
        except OSError as error:
            raise CheckpointError(
                f"the folder for checkpoints, {self.folder}, can't be read: {error.strerror}",
                "name another one with `checkpoint.configure(folder)`",
            ) from error

    def _choose(self, step: int | None) -> str:
        """The checkpoint to load. The newest that is damaged gives way to the one before."""
        complete = self._checkpoints()
        if step is not None:
            if step not in complete:
                raise self._no_such_step(step)
            self._verify(complete[step])
            return complete[step].path.name
        for info in reversed(complete.values()):
            try:
                self._verify(info)
            except CheckpointError as error:
                if info.format > folders.FORMAT or self._is_of_this_run(info):
                    raise
                _LOG.warning("%s; loading the one before", error.message)
                continue
            return info.path.name
        return _NONE

    def _verify(self, info: CheckpointInfo) -> None:
        try:
            folders.verify(info)
        except CheckpointError as error:
            if not self._is_of_this_run(info):
                raise
            raise CheckpointError(
                f"{info.path.name} was saved to the folders of several machines, and is whole in "
                "none of them",
                "the job finds it whole when it is tried again; to load it in the same run, save "
                "to a folder that all nodes share",
            ) from error

    def _is_of_this_run(self, info: CheckpointInfo) -> bool:
        """Whether its parts are on other machines, where this run has left them."""
        return self._meet().store is not None and f"-{self._session or None}-" in info.save_id

    def _agree(self, name: str, choose: Any) -> str:
        """What rank 0 chooses; an error of its choice is every rank's."""

        def choose_or_fail() -> str:
            try:
                return "=" + str(choose())
            except CheckpointError as error:
                return f"!{error.message}\n{error.hint}"

        self._calls += 1
        name_hash = zlib.crc32(self._name.encode())
        key = f"torchyard-checkpoint/{name}/{name_hash:x}/{self._calls}"
        answer = self.ranks.agree(key, choose_or_fail, self._timeout_s)
        if answer.startswith("!"):
            message, _, hint = answer[1:].rpartition("\n")
            raise CheckpointError(message, hint)
        return answer[1:]

    def _no_such_step(self, step: int) -> CheckpointError:
        steps = ", ".join(map(str, self._checkpoints())) or "none"
        return CheckpointError(
            f"there is no checkpoint of step {step} in {self.folder}", f"there are: {steps}"
        )


def _check_step(step: Any) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise CheckpointError(f"`step` must be an integer >= 0, not {step!r}")
