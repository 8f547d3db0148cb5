"""What early versions of torch 2 ask of the classes that a rehearsal puts in place of theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any

from torchyard.worker.in_rank import rehearsal_cuda
from torchyard.worker.in_rank.rehearsal_devices import Devices


class _StreamBase(ABC):
    @abstractmethod
    def synchronize(self) -> None: ...


class _EventBase(ABC):
    @abstractmethod
    def synchronize(self) -> None: ...


def test_streams_and_events_are_of_the_base_classes_of_torch_2_1_to_2_3() -> None:
    bases = SimpleNamespace(_StreamBase=_StreamBase, _EventBase=_EventBase)
    classes = streams_of(SimpleNamespace(_streambase=bases))
    assert issubclass(classes["Stream"], _StreamBase)
    assert issubclass(classes["Event"], _EventBase)
    assert not issubclass(classes["StreamContext"], _StreamBase)


def test_a_torch_without_such_classes_is_left_alone() -> None:
    assert streams_of(SimpleNamespace())["Event"] is rehearsal_cuda.Event


def streams_of(torch: SimpleNamespace) -> dict[str, Any]:
    torch.device = lambda *words: words
    return rehearsal_cuda.streams(torch, Devices(torch))
