"""Labels of Ray's nodes: which jobs a machine takes.

Owns: a person's name as a label, which nodes a job's bundles may be placed on.
Leaves: giving nodes their labels to node_agent/, placement to Ray.
Always: a machine without a runner gets no job of another person than its owner.

Source: values of labels: https://docs.ray.io/en/latest/ray-core/scheduling/labels.html
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

OWNER, MACHINE = "torchyard-owner", "torchyard-machine"
# The owner of a machine whose runner starts jobs as their own people; nobody's label by a name.
EVERYBODY = "person-everybody"
_VALUE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?")


def person_label(person: str) -> str:
    """A person's name as a label's value; names that can't be one are hashed."""
    if _VALUE.fullmatch(person) and not person.startswith("person-"):
        return person
    return "person-" + hashlib.sha256(person.encode()).hexdigest()[:32]


def selector(person: str, drained: Collection[str] = ()) -> dict[str, str]:
    """Where the jobs of a person may run, among machines that torchyard's own head has.

    Args:
        drained: machines that take no further job.
    """
    labels = {OWNER: f"in({person_label(person)},{EVERYBODY})"}
    if drained:
        labels[MACHINE] = f"!in({','.join(sorted(drained))})"
    return labels
