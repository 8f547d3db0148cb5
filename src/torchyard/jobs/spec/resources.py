"""What a job file says of nodes, limits and the rights of a job.

Owns: `resources`, `limits`, `identity` and `queue_settings`.
Leaves: distribution to distribution.py; whether the compute has that many nodes to jobs/actions.py.
Always: what can't be kept is refused; what is kept by other means is told as a notice when the
user could think otherwise.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import Field

from torchyard.base.documents.models import At, By, Check, Choice, Key, Refused, Text
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import count, seconds, text
from torchyard.jobs.spec.parts import JobPart

_SHM_SIZE = re.compile(r"^\d+(?:\.\d+)?[bkmg]\Z", re.IGNORECASE)
_HARMLESS_ARGUMENTS = ("--shm-size", "--ipc", "--gpus", "--runtime", "--ulimit")
_NO_IDENTITY = Key("remove it: there is no Azure identity to act as", "refused")
_NO_IDENTITY_KEY = Refused(_NO_IDENTITY.note)
_ONLY_SPOT = Key("nobody but spot jobs is preempted", "satisfied")
JOB_TIER = Choice(
    spot=Key("may be preempted by any other job; comes last"),
    basic=_ONLY_SPOT,
    standard=_ONLY_SPOT,
    premium=_ONLY_SPOT,
)
PRIORITY = Choice(
    medium=Key("the default"),
    low=Key("after all others of its cluster"),
    high=Key("before all others of its cluster"),
)
_IDENTITY = Choice(
    user_identity=Key("a job acts with its owner's rights", "satisfied"),
    aml_token=Key("a job gets a token of its own", "satisfied"),
    managed=_NO_IDENTITY,
    managed_identity=_NO_IDENTITY,
)


class AtLeast(Check):
    """A whole number that has no other bound."""

    def __init__(self, least: int) -> None:
        self._least = least

    def read(self, body: Any, key: str, at: At, default: Any) -> int:
        return count(body, key, at, default=0, least=self._least)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self._least}


class Seconds(Check):
    """A whole number; the hint turns a duration into it."""

    def read(self, body: Any, key: str, at: At, default: Any) -> int:
        return seconds(body, key, at)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": 0}


def _shm_size(value: Any, at: At) -> str:
    written = text({at[-1]: value}, str(at[-1]), at[:-1])
    if written and not _SHM_SIZE.match(written.strip()):
        raise InvalidSpec(
            f"`{written}` is not a valid `shm_size`",
            "a number and one of b, k, m, g: `2g`",
            at=at,
        )
    return written


def _docker_args(value: Any, at: At) -> list[str]:
    """Arguments that ask for what the processes of a job have anyway."""
    words = value.split() if isinstance(value, str) else value or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidSpec("`docker_args` must be text or a list of texts", "remove it", at=at)
    # An argument's value is a word of its own, or stands behind `=`.
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    refused = [option for option in options if option not in _HARMLESS_ARGUMENTS]
    if refused or (words and not words[0].startswith("-")):
        raise InvalidSpec(
            f"`docker_args: {(refused or words)[0][:80]}` is not served",
            "jobs start no container of their own: remove it",
            code="not_served",
            at=at,
        )
    return words


class ResourcesFile(JobPart):
    path_in_file: ClassVar[str] = "resources"
    example: ClassVar[str] = "{instance_count: 2}"

    instance_count: Annotated[
        int, AtLeast(1), Key("default 1; of an elastic job, how many it starts with")
    ] = 0
    instance_type: Annotated[
        str, Text(), Key("nodes are what the compute has; said on the job", "satisfied")
    ] = ""
    shm_size: Annotated[
        str, By(_shm_size), Key("processes have all of the machine's `/dev/shm`", "satisfied")
    ] = ""
    docker_args: Annotated[
        list[str],
        By(_docker_args),
        Key(
            "`--shm-size`, `--ipc`, `--gpus`, `--runtime` and `--ulimit` ask for what processes "
            "have anyway; others are refused",
            "satisfied",
        ),
    ] = Field(default_factory=list)
    properties: Annotated[None, Refused("they are for Azure's own schedulers: remove them")] = None
    locations: Annotated[None, Refused("nodes are where your machines are: remove it")] = None
    max_instance_count: Annotated[
        None, Refused("write `torchyard: {min_nodes: 1, max_nodes: 4}`")
    ] = None

    @property
    def notices(self) -> list[str]:
        notices = []
        if self.instance_type:
            notices.append(
                f"`resources.instance_type: {self.instance_type}` chooses nothing: the nodes of "
                "the compute are what they are"
            )
        if self.docker_args:
            notices.append("`resources.docker_args` changes nothing: the job has them anyway")
        return notices


class LimitsFile(JobPart):
    path_in_file: ClassVar[str] = "limits"
    example: ClassVar[str] = "{timeout: 3600}"

    timeout: Annotated[
        int, Seconds(), Key("seconds from the start of the ranks; 0 means no limit")
    ] = 0


class IdentityFile(JobPart):
    path_in_file: ClassVar[str] = "identity"

    type: Annotated[str, _IDENTITY] = "aml_token"
    client_id: Annotated[None, _NO_IDENTITY_KEY] = None
    object_id: Annotated[None, _NO_IDENTITY_KEY] = None
    msi_resource_id: Annotated[None, _NO_IDENTITY_KEY] = None


class QueueFile(JobPart):
    path_in_file: ClassVar[str] = "queue_settings"
    example: ClassVar[str] = "{job_tier: standard}"

    job_tier: Annotated[str, JOB_TIER] = "standard"
    priority: Annotated[str, PRIORITY] = "medium"
