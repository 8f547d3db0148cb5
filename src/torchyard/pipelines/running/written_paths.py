"""Paths in datastores that the steps of a pipeline write.

Owns: which inputs of a step lie where another step writes.
Leaves: what is there to the check of the step's job when it starts.
Always: a path with the name of a job in it is not one of them: no file can name it before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from torchyard.base.errors import TorchyardError
from torchyard.data import uris
from torchyard.jobs.files import outputs
from torchyard.jobs.spec.inputs import read_outputs
from torchyard.pipelines.spec.plan import Step

Written = Mapping[tuple[str, str], set[str]]
"""The steps that write there, by datastore and path."""


def of_steps(workspace: str, steps: Iterable[Step]) -> Written:
    written: dict[tuple[str, str], set[str]] = defaultdict(set)
    for step in steps:
        # Faults are reported by the check of the step.
        with suppress(TorchyardError):
            declared = read_outputs(step.document.get("outputs"), ("outputs",))
            for name, output in declared.items():
                place = outputs.destination_of(workspace, "", name, output)
                if place.is_shared:
                    written[place.store, place.path.strip("/")].add(step.name)
    return written


def read_by(workspace: str, step: Step, written: Written) -> Iterator[str]:
    """The inputs of a step that lie at or below what other steps write."""
    for name, value in (step.document.get("inputs") or {}).items() if written else ():
        if not isinstance(value, Mapping):
            continue
        with suppress(TorchyardError):
            uri = uris.datastore(str(value.get("path")), workspace)
            parts = uri.path.strip("/").split("/") if uri is not None else []
            above = ("/".join(parts[:size]) for size in range(len(parts) + 1))
            if uri and any(written.get((uri.store, path), set()) - {step.name} for path in above):
                yield name
