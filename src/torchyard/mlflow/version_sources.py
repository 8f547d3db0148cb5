"""Where the files of a model version come from when an MLflow client registers it.

Owns: the forms of a version's `source` that name something on this server.
Leaves: files of runs and datastores to jobs/files/model_sources.py.
Always: files on this server are found, so that they can be copied; a URI of another server is
left to the client, which reads it with its own credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from torchyard.assets.sources import Source
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import Datastores
from torchyard.jobs.files import job_environments, model_sources
from torchyard.jobs.services import FileServices
from torchyard.mlflow.model_json import (
    REGISTERED_FOLDER,
    logged_model_uri,
    name_in_path,
    version_uri,
)
from torchyard.models import actions, logged, registry
from torchyard.models.types import LoggedModel, Model

_PROXY = "/api/2.0/mlflow-artifacts/artifacts/"
_NO_FILES = Source(())


@contextmanager
def open_source(services: FileServices, workspace: str, uri: str) -> Iterator[Source]:
    """The files that a version's `source` names; none if they are on another server.

    Raises:
        InvalidInput: it names a file on the server's own disk, or leaves its folder.
        NotFound: it names a model that does not exist.
    """
    _refuse_local(uri)
    parts = _parts_of(uri)
    path = _artifact_path(uri)
    if parts.scheme == "models":
        yield _model_source(services, workspace, parts.path.strip("/"))
    elif parts.scheme == "azureml":
        with model_sources.find(services, workspace, uri) as source:
            yield source
    elif parts.scheme == "runs":
        run, _, inner_path = parts.path.lstrip("/").partition("/")
        with _run_source(services, workspace, run, inner_path) as source:
            yield source
    elif path is None:
        yield _NO_FILES
    else:
        with _artifact_source(services, workspace, path) as source:
            yield source


def logged_model_source(services: FileServices, model: LoggedModel, folder: str = "") -> Source:
    """A logged model's files, or only those below `folder` if it is not empty."""
    above = f"{folder.strip('/')}/" if folder.strip("/") else ""
    files = tuple(
        (path[len(above) :], logged.file(services.datastores, model, path))
        for path, _ in logged.list_files(services.datastores, model)
        if path.startswith(above)
    )
    return Source(
        files,
        model.run,
        uri="" if files else logged_model_uri(model),
        environment=job_environments.named_by(services, model.workspace, model.run),
    )


def version_source(datastores: Datastores, model: Model) -> Source:
    files = tuple((file.path, actions.file(datastores, model, file.path)) for file in model.files)
    return Source(
        files,
        model.job,
        model.single,
        "" if files else version_uri(model),
        environment=model.environment,
    )


def find_version(db: Database, workspace: str, name: str, text: str) -> Model:
    """The version with a number, an alias, `latest` or a stage.

    Raises:
        NotFound: there is none.
    """
    for model in registry.newest_of_stages(
        registry.get_with_versions(db, workspace, name).versions
    ):
        if model.stage and model.stage.lower() == text.lower():
            return model
    return actions.get(db, workspace, name, text)


def logged_model_id(uri: str) -> str:
    """The id of the logged model that `models:/m-…` names, or empty for another URI."""
    path = _parts_of(uri).path.strip("/") if uri.startswith("models:/") else ""
    return path if path.startswith("m-") and "/" not in path else ""


def _model_source(services: FileServices, workspace: str, path: str) -> Source:
    name, separator, version = path.partition("/")
    if not separator:
        name, separator, version = path.partition("@")
    if not separator:
        return logged_model_source(services, logged.get(services.db, workspace, path))
    return version_source(services.datastores, find_version(services.db, workspace, name, version))


@contextmanager
def _artifact_source(services: FileServices, workspace: str, path: str) -> Iterator[Source]:
    """`<experiment>/<run>/artifacts/…`, `<experiment>/models/<id>/artifacts/…` or a version."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == REGISTERED_FOLDER:
        name = name_in_path(parts[1])
        yield version_source(
            services.datastores, find_version(services.db, workspace, name, parts[2])
        )
    elif len(parts) >= 4 and (parts[1], parts[3]) == ("models", "artifacts"):
        model = logged.get(services.db, workspace, parts[2])
        yield logged_model_source(services, model, "/".join(parts[4:]))
    elif len(parts) >= 3 and parts[2] == "artifacts":
        with _run_source(services, workspace, parts[1], "/".join(parts[3:])) as source:
            yield source
    else:
        yield _NO_FILES


@contextmanager
def _run_source(services: FileServices, workspace: str, run: str, path: str) -> Iterator[Source]:
    """No files when the run or its files do not exist, for MLflow requires neither."""
    with ExitStack() as stack:
        source = _NO_FILES
        for artifact_path in dict.fromkeys((path, unquote(path))):
            uri = f"azureml://jobs/{run}/outputs/artifacts/paths/{artifact_path}"
            try:
                source = stack.enter_context(model_sources.find(services, workspace, uri))
            except NotFound:
                continue
            break
        yield source


def _artifact_path(uri: str) -> str | None:
    parts = _parts_of(uri)
    if parts.scheme == "mlflow-artifacts":
        return parts.path
    if parts.scheme in ("http", "https") and _PROXY in parts.path:
        return parts.path.partition(_PROXY)[2]
    return None


def _parts_of(uri: str) -> SplitResult:
    """
    Raises:
        InvalidInput: it is not a URI.
    """
    try:
        return urlsplit(uri)
    except ValueError as error:
        raise InvalidInput(f"Invalid model version source: '{uri[:300]}': {error}") from error


def _refuse_local(uri: str) -> None:
    plain = uri
    while (unquoted := unquote_plus(plain)) != plain:
        plain = unquoted
    scheme = _parts_of(plain).scheme
    if scheme in ("", "file") or len(scheme) == 1:
        raise InvalidInput(
            f"Invalid model version source: '{uri[:300]}'. To use a local path as a model version "
            "source, the run_id request parameter has to be specified and the local path has to be "
            "contained within the artifact directory of the run specified by the run_id."
        )
    if "\0" in plain or ".." in plain.split("/"):
        raise InvalidInput(
            f"Invalid model version source: '{uri[:300]}'. If supplying a source as an http, "
            "https, local file path, ftp, objectstore, or mlflow-artifacts uri, an absolute path "
            "must be provided without relative path references present. Please provide an "
            "absolute path."
        )
