"""What MLflow's client does otherwise inside a job, so that it behaves as on Azure.

Owns: artifact paths such as `./model`, the link to the run that MLflow prints, and the way of
azureml-mlflow's requests through the node's relay.
Leaves: noticing MLflow's import to rank_hook.py, answering to worker/relay/.
Always: nothing is imported that the script does not import; a change that fails leaves MLflow as
it is; credentials that are not the job's own stay with the address that they were made for.
Runs on Python 3.6 and later.
"""

import os
import sys

MYPY = False
if MYPY:
    from typing import Any

_RELAY = "TORCHYARD_RELAY"


def expect() -> None:
    """MLflow is being imported: change its modules as they are."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Finds the modules to change, with a loader that changes them."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        change = _CHANGES.get(name)
        if change is None:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if spec is None or execute is None:
            return None

        def execute_and_change(module: "Any") -> None:
            execute(module)
            try:
                change(module)
            except Exception:
                pass

        setattr(spec.loader, "exec_module", execute_and_change)  # noqa: B010
        return spec


def _accept_paths(module: "Any") -> None:
    """Azure's plug-in takes `./model` for `model`; MLflow's own client refuses it by the name."""
    original = module.verify_artifact_path

    def verify_artifact_path(artifact_path: "Any") -> None:
        original(_plain(artifact_path))

    module.verify_artifact_path = verify_artifact_path


def _plain(path: "Any") -> "Any":
    """The path without empty parts and `.`; one that leaves its folder stays as it is."""
    if not isinstance(path, str) or path.startswith("/") or ".." in path.split("/"):
        return path
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _print_link(module: "Any") -> None:
    """MLflow prints the address that it logs to, which is the relay's and ends with the job."""
    client = module.TrackingServiceClient
    original = client._log_url

    def _log_url(self: "Any", run_id: str) -> None:
        server = os.environ.get("AZUREML_SERVICE_ENDPOINT", "")
        scope = os.environ.get("AZUREML_WORKSPACE_SCOPE", "")
        host = self.store.get_host_creds().host
        if not (server and scope and _relay() and host.startswith((_relay(), server))):
            original(self, run_id)
            return
        suppressed = os.environ.get("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "")
        if suppressed.lower() in ("1", "true"):
            return
        name = self.store.get_run(run_id).info.run_name
        link = f"{server}/runs/{run_id}?wsid={scope}"
        sys.stdout.write(f"\U0001f3c3 View run {name} at: {link}\n")

    client._log_url = _log_url


def _through_relay(module: "Any") -> None:
    """The plug-in logs to the server by TLS; what the job itself logs takes the relay, which
    keeps it while the server is unreachable.
    """
    store = module.AzureMLAbstractRestStore
    original = store.get_host_credentials

    def get_host_credentials(self: "Any") -> "Any":
        credentials = original(self)
        server = os.environ.get("AZUREML_SERVICE_ENDPOINT", "")
        own_path = f"{server}/mlflow/"
        is_run_token = credentials.token == os.environ.get("AZUREML_RUN_TOKEN", "")
        if server and _relay() and is_run_token and credentials.host.startswith(own_path):
            credentials.host = _relay() + credentials.host[len(server) :]
        return credentials

    store.get_host_credentials = get_host_credentials


def _relay() -> str:
    return os.environ.get(_RELAY, "")


_CHANGES = {
    "mlflow.store.artifact.artifact_repo": _accept_paths,
    "mlflow.tracking._tracking_service.client": _print_link,
    "azureml.mlflow._store.azureml_reststore": _through_relay,
}
