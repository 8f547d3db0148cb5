"""Make an ordinary training loop go on where it was stopped.

Owns: counters, the position in the data, random number generators, when to save.
Leaves: checkpoints to `checkpoint`, the signal to stop to `stopping`.
Always: on the CPU and with the same number of ranks, a training that was stopped ends with the
same weights as one that wasn't.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from torchyard.train import run, stopping
from torchyard.train.batches import Batches
from torchyard.train.checkpoint import resumption
from torchyard.train.checkpoint.checkpointer import Checkpointer, Pending
from torchyard.train.checkpoint.errors import CheckpointError

_COUNTERS = "torchyard_loop"


class Loop:
    """Loads the newest checkpoint, counts steps and saves.

        loop = Loop({"model": model, "optimizer": optimizer}, save_every=100)
        for epoch in loop.epochs(10):
            for batch in loop.batches(loader):
                ...

    `step` counts optimizer steps done, `resumed_from` is the step that was loaded, or None.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        *,
        save_every: int,
        folder: str | Path | None = None,
        **options: Any,
    ) -> None:
        """Load into `state`; see `Checkpointer` for its kinds, `folder` and the other options.

        Raises:
            CheckpointError: `save_every` is not a positive integer, or the checkpoint does not fit.
        """
        if not isinstance(save_every, int) or save_every < 1:
            raise CheckpointError(f"`save_every` must be a positive integer, not {save_every!r}")
        self.checkpointer = Checkpointer(folder, **options)
        self.step = 0
        self.epoch = 0
        self.resumed_from: int | None = None
        self._state = dict(state)
        self._save_every = save_every
        self._saved: Pending | None = None
        self._batch = 0
        # Of the epoch, over all ranks; counted where the loader has `Batches`.
        self._samples = 0
        self._epoch_generators: Any = None
        self._generators: Any = None
        self._loader: Any = None
        self._loader_state: Any = None
        # What is due at the last batch of an epoch waits for the epoch's end, which goes on from
        # there: the script has something to do after its batches.
        self._has_epochs = self._is_save_due = self._is_stop_due = False
        stopping.listen()
        self._load()
        run.set_step(self.step)

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of `count`; the end of the last one is saved."""
        self._has_epochs = True
        while self.epoch < count:
            yield self.epoch
            self.epoch += 1
            self._batch = self._samples = 0
            self._epoch_generators = None
            self._save_what_is_due()
        if self._saved is None or self._saved.step != self.step:
            self.save()
        self.checkpointer.wait()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches that are left of this epoch, in the order that they would have had.

        After each one a step is counted. A loader with `Batches`, and `torchdata`'s
        StatefulDataLoader, go to their place at once; others read again what the epoch has had.
        """
        sampler: Any = getattr(loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(self.epoch)
        self._loader = loader
        batches = getattr(loader, "batch_sampler", None)
        if isinstance(batches, Batches):
            batches.set_epoch(self.epoch)
            batches.set_position(self._samples)
        for batch in self._iterator(loader):
            yield batch
            self._batch += 1
            if isinstance(batches, Batches):
                self._samples = batches.after_step(self._samples)
            self.step += 1
            run.set_step(self.step)
            self._after_step(self._is_last(loader))

    def save(self, *, metric: float | None = None) -> Pending:
        """Save now, beside what `save_every` saves."""
        rank_state = {
            "generators": generators(),
            "epoch_generators": self._epoch_generators,
            "loader": self._loader.state_dict()
            if self._batch and _is_stateful(self._loader)
            else None,
        }
        counters = {"step": self.step, "epoch": self.epoch, "batch": self._batch,
                    "samples": self._samples,
                    "ranks": self.checkpointer.ranks.world_size}  # fmt: skip
        state = {
            **self._state,
            _COUNTERS: pickle.dumps(counters),
            self._own_key(): pickle.dumps(rank_state),
        }
        self._saved = self.checkpointer.save(self.step, state, metric=metric)
        return self._saved

    def _load(self) -> None:
        template = {**self._state, _COUNTERS: b"", self._own_key(): b""}
        loaded = self.checkpointer.load(template, optional=(self._own_key(),))
        if loaded is None:
            if self.checkpointer.ranks.rank == 0:
                resumption.tell_beginning()
            return
        self.resumed_from, tree = loaded
        for key, value in self._state.items():
            if key in tree and not _is_filled_in_place(value):
                self._state[key] = tree[key]
        counters = pickle.loads(tree[_COUNTERS])
        self.step, self.epoch = counters["step"], counters["epoch"]
        self._samples = counters.get("samples", 0)
        # With another number of ranks, about the same samples of the epoch are left.
        self._batch = counters["batch"] * counters["ranks"] // self.checkpointer.ranks.world_size
        if tree.get(self._own_key()):
            rank_state = pickle.loads(tree[self._own_key()])
            self._epoch_generators, self._generators = (
                rank_state["epoch_generators"],
                rank_state["generators"],
            )
            self._loader_state = rank_state["loader"]

    def _iterator(self, loader: Iterable[Any]) -> Iterator[Any]:
        """At the place where the epoch was left, with the generators as they were then."""
        if self._generators is not None and not self._batch and not self._samples:
            # As the epoch begins, before a loader draws its order.
            set_generators(self._generators)
            self._generators = None
        if isinstance(getattr(loader, "batch_sampler", None), Batches):
            iterator = iter(loader)
        elif self._loader_state is not None and _is_stateful(loader):
            loader.load_state_dict(self._loader_state)  # type: ignore[attr-defined]
            iterator = iter(loader)
        else:
            # A loader draws the order of an epoch when it begins.
            if self._epoch_generators is None:
                self._epoch_generators = generators()
            else:
                set_generators(self._epoch_generators)
            iterator = iter(loader)
            for _ in range(self._batch):
                next(iterator, None)
        if self._generators is not None:
            set_generators(self._generators)
        self._generators = self._loader_state = None
        return iterator

    def _is_last(self, loader: Iterable[Any]) -> bool:
        """Whether this was the last batch of the epoch, where that is known."""
        batches = getattr(loader, "batch_sampler", None)
        if isinstance(batches, Batches):
            return batches.steps_after(self._samples) == 0
        try:
            return self._batch >= len(loader)  # type: ignore[arg-type]
        except TypeError:
            return False

    def _after_step(self, is_last: bool) -> None:
        self._is_stop_due = stopping.should_stop()
        self._is_save_due = self._is_stop_due or self.step % self._save_every == 0
        if not (is_last and self._has_epochs):
            self._save_what_is_due()
        elif self._is_stop_due:  # who told it to stop may not wait until the epoch's end
            self.save()
            self.checkpointer.wait()

    def _save_what_is_due(self) -> None:
        if self._is_save_due:
            self.save()
        self._is_save_due = False
        if self._is_stop_due:
            self.checkpointer.wait()
            stopping.stop()

    def _own_key(self) -> str:
        return f"torchyard_loop_rank{self.checkpointer.ranks.rank}"


def generators() -> dict[str, Any]:
    """The states of this process's random number generators."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_generators(states: Mapping[str, Any]) -> None:
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _is_stateful(loader: Any) -> bool:
    if not getattr(loader, "use_stateful_dataloader", True):
        return False  # Accelerate's loaders have the methods even where they don't work
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _is_filled_in_place(value: Any) -> bool:
    return isinstance(value, torch.Tensor | dict) or hasattr(value, "load_state_dict")
