"""Whether a job's torch.save is intercepted: files below ./outputs are written in the background.

Owns: reading `torchyard.checkpoint.intercept`, what its environment needs, what the job says of it.
Leaves: the interception to torchyard.train, its hook to worker/files/interception.py.
Always: left out means off.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.base.errors import InvalidSpec
from torchyard.environments.types import EnvironmentSpec
from torchyard.jobs.spec import own_properties

PROPERTY = "torchyard.checkpoint.intercept"
_LAYER = "torchyard-train"
_NOTICE = (
    "torch.save is intercepted: files below `./outputs` are written in the background; "
    "`logs/torch_saves.csv` lists them"
)


def is_intercepted(properties: Mapping[str, str]) -> bool:
    """
    Raises:
        InvalidSpec: neither true nor false.
    """
    return own_properties.truth(properties, PROPERTY, False)


def notices(properties: Mapping[str, str], environment: EnvironmentSpec) -> list[str]:
    """What the job says at its start; nothing for an ordinary one.

    What an image holds is known where it runs: there, the rank's log says what is missing.

    Raises:
        InvalidSpec: the environment lacks torchyard-train.
    """
    if not is_intercepted(properties):
        return []
    if environment.image is None and _LAYER not in environment.layers:
        raise InvalidSpec(
            f"`{PROPERTY}` needs `{_LAYER}`, which the environment does not list",
            f"add `{_LAYER}` to the packages of the environment, beside `torch`",
            at=("properties", PROPERTY),
        )
    return [_NOTICE]
