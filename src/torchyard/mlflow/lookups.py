"""Find the experiments and runs that a request names.

Owns: experiment ids as clients know them, the default experiment, MLflow's words for what does
not exist.
Leaves: the rows to jobs/.
Always: to a client the experiment `Default` has the id `0`, in every workspace; deleted
experiments and runs are found, too.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.jobs import actions, owners
from torchyard.jobs.records.types import Experiment, Job
from torchyard.jobs.requests import runs
from torchyard.jobs.services import RecordServices
from torchyard.mlflow.calls import Call, invalid_parameter
from torchyard.workspaces.types import Identity, TokenKind

DEFAULT_NAME = "Default"
DEFAULT_ID = "0"
_MAX_ID_LENGTH = 18
_MOST_EXPERIMENTS = 5_000
_VIEWS = {"ACTIVE_ONLY": False, "DELETED_ONLY": True, "ALL": None}


def get_run(
    services: RecordServices, workspace: str, name: str, identity: Identity | None = None
) -> Job:
    """
    Args:
        identity: who wants to change the run; None to read it.

    Raises:
        NotFound: in MLflow's words.
        Forbidden: `identity` may change its own runs only, and this is another's.
    """
    try:
        job = actions.get(services, workspace, name)
    except NotFound as error:
        raise NotFound(f"Run with id={name[:100]} not found") from error
    if identity is not None:
        owners.refuse_foreign(identity, job, "run")
    return job


def get_experiment(services: RecordServices, workspace: str, text: str) -> Experiment:
    """The experiment with an id that `client_experiment_id` wrote, or with that number.

    Raises:
        NotFound: there is none.
    """
    if text == DEFAULT_ID:
        return default_experiment(services, workspace)
    if not _is_number(text):
        raise NotFound(f"No Experiment with id={text[:100]} exists")
    try:
        return runs.experiment(services, workspace, int(text))
    except NotFound as error:
        raise NotFound(f"No Experiment with id={text} exists") from error


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_ID_LENGTH


def experiment_ids(services: RecordServices, call: Call) -> list[int]:
    """The experiments in the field `experiment_ids`; MLflow ignores those that do not exist.

    Raises:
        InvalidInput: there are too many.
    """
    texts = call.texts("experiment_ids")
    if len(texts) > _MOST_EXPERIMENTS:
        raise InvalidInput(
            f"`experiment_ids` has {len(texts)} entries; the limit is {_MOST_EXPERIMENTS}",
            "search in several requests",
        )
    numbers = dict.fromkeys(
        default_experiment(services, call.workspace).id if text == DEFAULT_ID else int(text)
        for text in dict.fromkeys(texts)
        if _is_number(text)
    )
    existing = runs.existing_experiments(services.db, call.workspace, numbers)
    return [number for number in numbers if number in existing]


def default_experiment(services: RecordServices, workspace: str) -> Experiment:
    """The experiment of runs that name none, created when it is first needed."""
    experiment = runs.experiment_named(services.db, workspace, DEFAULT_NAME)
    if experiment is not None:
        return experiment
    try:
        return runs.create_experiment(services, workspace, DEFAULT_NAME, {})
    except Conflict:
        # Another request created it first.
        experiment = runs.experiment_named(services.db, workspace, DEFAULT_NAME)
        assert experiment is not None
        return experiment


def client_experiment_id(call: Call, number: int, name: str) -> str:
    """The id that the client reads: as in every MLflow, `Default` is `0`.

    A job's script reads the number, which its environment variables name, for clients compare
    the two.
    """
    is_script = call.identity.kind is TokenKind.RUN
    return DEFAULT_ID if name == DEFAULT_NAME and not is_script else str(number)


def client_experiment_ids(db: Database, call: Call) -> Callable[[int], str]:
    """`client_experiment_id` for callers that know an experiment's number but not its name."""
    default = runs.experiment_named(db, call.workspace, DEFAULT_NAME)
    default_number = None if default is None else default.id

    def client_id(number: int) -> str:
        return client_experiment_id(call, number, DEFAULT_NAME if number == default_number else "")

    return client_id


def read_deleted(call: Call, field: str = "view_type") -> bool | None:
    """Whether a search wants only deleted items (True), none of them (False) or all (None)."""
    view = call.text(field, default="ACTIVE_ONLY")
    if view not in _VIEWS:
        raise invalid_parameter(field, view, f"it must be one of {', '.join(_VIEWS)}.")
    return _VIEWS[view]
