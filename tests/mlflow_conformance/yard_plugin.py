"""A pytest plugin that makes MLflow's own tests talk to a yard-server.

Owns: where MLflow's tests start a server of theirs, what every request carries, one line a test
about how it went.
Leaves: starting the yard-server and the table to run.py, what is not applicable to its own table.
Always: runs in the interpreter that has mlflow, and imports nothing of torchyard; MLflow's test
files stay as they are. A test that never asked our server says nothing about it, and is reported
so.

A sqlite database that a test names becomes a workspace of its own, named by the database; so
does a server that a test would start.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import not_applicable
import pytest
import requests

_URL = os.environ["YARD_CONFORMANCE_URL"]
_TOKEN = os.environ["YARD_CONFORMANCE_TOKEN"]
_HOME = Path(os.environ["YARD_CONFORMANCE_HOME"])
_RESULTS = Path(os.environ["YARD_CONFORMANCE_RESULTS"])
_EVERYTHING = bool(os.environ.get("YARD_CONFORMANCE_EVERYTHING"))

_RUN_ARTIFACTS = re.compile(r"mlflow-artifacts:/[^/]+/(?P<run>[^/]+)/artifacts(?:/(?P<path>.*))?")

_request_count = 0
_databases: dict[str, str] = {}
_send = requests.Session.send


def _carry(session: Any, request: Any, **options: Any) -> Any:
    global _request_count
    if request.url.startswith(_URL):
        if "Authorization" not in request.headers:
            request.headers["Authorization"] = f"Bearer {_TOKEN}"
        _request_count += 1
    return _send(session, request, **options)


requests.Session.send = _carry


def _new_workspace() -> str:
    """The address of a fresh workspace."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    with requests.Session() as session:
        prepared = session.prepare_request(
            requests.Request("POST", f"{_URL}/v1/workspaces", headers=headers, json={"name": name})
        )
        _send(session, prepared, timeout=30).raise_for_status()
    return f"{_URL}/mlflow/{name}"


def _workspace_of(database: str) -> str:
    if database not in _databases:
        _databases[database] = _new_workspace()
    return _databases[database]


@contextlib.contextmanager
def _yard_server(backend_uri: str, *arguments: Any, **options: Any) -> Iterator[str]:
    import mlflow

    mlflow.set_tracking_uri(None)
    yield _workspace_of(str(backend_uri))


class _YardThread:
    """Replaces the thread that would run MLflow's server on a database."""

    database = ""

    def __init__(self, app: Any, port: int) -> None:
        self.url = ""

    def __enter__(self) -> str:
        self.url = _workspace_of(self.database)
        return self.url

    def __exit__(self, *raised: Any) -> None:
        return None


def _set_backend(backend_store_uri: Any = None, *arguments: Any, **options: Any) -> None:
    """Replaces opening MLflow's own stores, before the thread starts."""
    _YardThread.database = str(backend_store_uri)


def _workspace_uri(uri: Any) -> Any:
    """The workspace of a database; any other URI stays as it is."""
    return _workspace_of(str(uri)) if str(uri or "").startswith("sqlite:") else uri


def _redirect_uris() -> None:
    from mlflow.tracking._tracking_service import utils
    from mlflow.tracking.client import MlflowClient

    plain: Callable[[Any], None] = utils.set_tracking_uri
    opened = MlflowClient.__init__

    def set_tracking_uri(uri: Any) -> None:
        plain(_workspace_uri(uri))

    def open_client(client: Any, tracking_uri: Any = None, registry_uri: Any = None) -> None:
        opened(client, _workspace_uri(tracking_uri), registry_uri)

    MlflowClient.__init__ = open_client

    for name in ("mlflow", "mlflow.tracking", "mlflow.tracking._tracking_service.utils"):
        module = importlib.import_module(name)
        if hasattr(module, "set_tracking_uri"):
            module.set_tracking_uri = set_tracking_uri  # type: ignore[attr-defined]


def _redirect_servers() -> None:
    try:
        shared = importlib.import_module("tests.tracking.integration_test_utils")
    except ImportError as error:
        raise pytest.UsageError(f"no checkout of MLflow's tests: {error}") from error
    shared._init_server = _yard_server  # type: ignore[attr-defined]
    if hasattr(shared, "ServerThread"):
        shared.ServerThread = _YardThread  # type: ignore[attr-defined]
        handlers = importlib.import_module("mlflow.server.handlers")
        handlers.initialize_backend_stores = _set_backend  # type: ignore[attr-defined]


def _redirect_folders(module: Any) -> None:
    """A test that reads a run's artifacts as a folder on its own disk gets the server's."""
    plain = module.local_file_uri_to_path

    def local_file_uri_to_path(uri: str) -> str:
        match = _RUN_ARTIFACTS.fullmatch(str(uri))
        if match is None:
            return str(plain(uri))
        import mlflow

        workspace = mlflow.get_tracking_uri().rpartition("/")[2]
        store = _HOME / "datastores" / workspace / "workspaceartifactstore"
        return str(store / "ExperimentRun" / f"dcid.{match['run']}" / (match["path"] or ""))

    module.local_file_uri_to_path = local_file_uri_to_path


class _Process:
    """The server process that a fixture expects."""

    pid = 0

    def kill(self) -> None:
        return None


def _redirect_artifact_server(module: Any) -> None:
    """`test_mlflow_artifacts` makes the address itself; its tests use `server.url`."""
    artifacts_server = module.ArtifactsServer
    launched = _new_workspace()

    def moved(store: str, root: str, destination: str, url: str, process: Any) -> Any:
        return artifacts_server(
            store,
            root.replace(url, launched),
            destination,
            launched,
            process,
        )

    def start_nothing(*_: Any) -> Any:
        return _Process()

    @contextlib.contextmanager
    def open_nothing(*_: Any) -> Iterator[Any]:
        yield _Process()

    is_context_manager = hasattr(module, "contextmanager")
    module._launch_server = open_nothing if is_context_manager else start_nothing
    module.ArtifactsServer = moved


def pytest_configure(config: pytest.Config) -> None:
    sys.path.insert(0, os.environ["YARD_CONFORMANCE_CHECKOUT"])
    _redirect_uris()
    _redirect_servers()
    # A slow or wrong server must fail a test, not delay it for minutes.
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "1"
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "60"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for module in {item.module for item in items if hasattr(item, "module")}:
        if hasattr(module, "ArtifactsServer"):
            _redirect_artifact_server(module)
        if hasattr(module, "local_file_uri_to_path"):
            _redirect_folders(module)
    for item in items:
        reason = not_applicable.reason(item.nodeid)
        if reason and not _EVERYTHING:
            item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))


@pytest.fixture(autouse=True)
def _token(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For processes that a test starts; tests of a client's own settings get none."""
    if request.node.path.name != "test_utils.py":
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", _TOKEN)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _request_count
    _request_count = 0
    return (yield)


_reports: dict[str, list[pytest.TestReport]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _reports.setdefault(report.nodeid, []).append(report)
    if report.when != "teardown":
        return
    phases = _reports.pop(report.nodeid)
    outcome, reason = "passed", ""
    for phase in phases:
        if phase.skipped:
            text = str(phase.longrepr[2]) if isinstance(phase.longrepr, tuple) else ""
            text = text.removeprefix("Skipped: ")
            if text.startswith("not applicable: "):
                outcome, reason = "not applicable", text.removeprefix("not applicable: ")
            else:
                outcome, reason = "skipped", text
        # Errors while cleaning up count: they are the test's own check for leaks.
        if phase.failed:
            outcome = "failed"
            crash = getattr(phase.longrepr, "reprcrash", None)
            reason = crash.message.splitlines()[0][:300] if crash else str(phase.longrepr)[-300:]
            break
    if outcome == "passed" and not _request_count:
        outcome = "never asked"
    line = {"test": report.nodeid, "outcome": outcome, "reason": reason, "requests": _request_count}
    with _RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")
