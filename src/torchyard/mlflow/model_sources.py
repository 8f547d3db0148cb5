"""Where the files of a version come from that an MLflow client registers.

Owns: the forms of a version's `source` that name something on this server.
Leaves: runs' files to whoever wired `Registry.find`.
Always: what lies here is found, so that it can be copied; another place's URI is left to the
client, which reads it from there with its own credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.mlflow.registry import (
    REGISTERED,
    Registry,
    logged_root,
    name_in_path,
    version_root,
)
from torchyard.models import actions, logged, registry
from torchyard.models.types import LoggedModel, Model, Source

_PROXY = "/api/2.0/mlflow-artifacts/artifacts/"
_NOTHING = Source(())


@contextmanager
def find(services: Registry, workspace: str, uri: str) -> Iterator[Source]:
    """The files that a version's `source` names, none when they lie elsewhere.

    Raises:
        InvalidInput: it names a file of the server's own machine, or climbs.
        NotFound: it names a model that does not exist.
    """
    _refuse_local(uri)
    parts = _parts_of(uri)
    path = _artifact_path(uri)
    if parts.scheme == "models":
        yield _of_model(services, workspace, parts.path.strip("/"))
    elif parts.scheme == "azureml":
        with services.find(workspace, uri) as source:
            yield source
    elif parts.scheme == "runs":
        job, _, inner = parts.path.lstrip("/").partition("/")
        with _of_run(services, workspace, job, inner) as source:
            yield source
    elif path is None:
        yield _NOTHING
    else:
        with _of_artifacts(services, workspace, path) as source:
            yield source


def of_logged(services: Registry, model: LoggedModel, inner: str = "") -> Source:
    """Its files, those below `inner` only if it is not empty."""
    below = f"{inner.strip('/')}/" if inner.strip("/") else ""
    found = tuple(
        (path[len(below) :], logged.file(services.datastores, model, path))
        for path, _ in logged.list_files(services.datastores, model)
        if path.startswith(below)
    )
    return Source(found, model.run, uri="" if found else logged_root(model))


def of_version(services: Registry, model: Model) -> Source:
    found = tuple(
        (file.path, actions.file(services.datastores, model, file.path)) for file in model.files
    )
    return Source(found, model.job, model.single, "" if found else version_root(model))


def version_named(services: Registry, workspace: str, name: str, text: str) -> Model:
    """By number, alias, `latest` or stage.

    Raises:
        NotFound: there is none.
    """
    for model in registry.newest_of_stages(registry.whole(services.db, workspace, name).versions):
        if model.stage and model.stage.lower() == text.lower():
            return model
    return actions.get(services.db, workspace, name, text)


def logged_id(uri: str) -> str:
    """The logged model that `models:/m-…` names, else empty."""
    path = _parts_of(uri).path.strip("/") if uri.startswith("models:/") else ""
    return path if path.startswith("m-") and "/" not in path else ""


def _of_model(services: Registry, workspace: str, path: str) -> Source:
    name, separator, version = path.partition("/")
    if not separator:
        name, separator, version = path.partition("@")
    if not separator:
        return of_logged(services, logged.get(services.db, workspace, path))
    return of_version(services, version_named(services, workspace, name, version))


@contextmanager
def _of_artifacts(services: Registry, workspace: str, path: str) -> Iterator[Source]:
    """`<experiment>/<run>/artifacts/…`, `<experiment>/models/<id>/artifacts/…` or a version."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == REGISTERED:
        name = name_in_path(parts[1])
        yield of_version(services, version_named(services, workspace, name, parts[2]))
    elif len(parts) >= 4 and (parts[1], parts[3]) == ("models", "artifacts"):
        model = logged.get(services.db, workspace, parts[2])
        yield of_logged(services, model, "/".join(parts[4:]))
    elif len(parts) >= 3 and parts[2] == "artifacts":
        with _of_run(services, workspace, parts[1], "/".join(parts[3:])) as source:
            yield source
    else:
        yield _NOTHING


@contextmanager
def _of_run(services: Registry, workspace: str, run: str, path: str) -> Iterator[Source]:
    """None when the run or its files are not there: MLflow asks for neither."""
    for one in dict.fromkeys((path, unquote(path))):
        finding = services.find(workspace, f"azureml://jobs/{run}/outputs/artifacts/paths/{one}")
        try:
            source = finding.__enter__()
        except NotFound:
            continue
        try:
            yield source
        finally:
            finding.__exit__(None, None, None)
        return
    yield _NOTHING


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
        InvalidInput: it is no URI.
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
