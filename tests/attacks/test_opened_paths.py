"""Which modules of the server open files by name, and whose files those are.

What a person, a job or a client named is opened by `shared/beneath.py` alone, through
`data/folders.py`, `data/account_folders.py` or as what those handed out. Every other call that
opens, lists, copies or removes by name is counted here, by module. Whoever adds one looks at whose
hand could have made the path: if it is not one of the reasons below, it belongs behind those.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import torchyard

SOURCE = Path(torchyard.__file__).parent
# What runs elsewhere, as somebody else: at a prompt, in a job, on a node, as root.
ELSEWHERE = (
    *("cli", "client", "local_program", "node_agent", "notebook"),
    *("runner", "shared", "train", "worker"),
)
_OS = {"open", "scandir", "listdir", "walk", "fwalk", "link", "symlink", "rename", "replace"}
_SHUTIL = {"copyfile", "copy", "copy2", "copytree", "move", "rmtree", "unpack_archive"}
_PATH = {
    "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "rglob", "touch",
}  # fmt: skip

# By the reason: how many such calls each module has.
OPENED: dict[str, dict[str, int]] = {
    "the home, which is closed to others and in which the server alone writes": {
        "app/application.py": 1,
        "app/server_log.py": 2,
        "azureml/job_variables.py": 2,
        "azureml/sdk_v1/snapshots.py": 2,
        "azureml/web_services/archives.py": 1,
        "azureml/web_services/unpack_program.py": 3,
        "azureml/web_services/images.py": 3,
        "base/audit_chain.py": 4,
        "base/blob_folders.py": 4,
        "base/blob_parts.py": 3,
        "base/blobs.py": 14,
        "base/bodies/body_spool.py": 1,
        "base/certificates.py": 4,
        "base/files.py": 6,
        "base/home/backup_record.py": 1,
        "base/home/home_database.py": 4,
        "base/home/home_service.py": 1,
        "base/home/passphrases.py": 1,
        "base/home/private_home.py": 1,
        "base/home/ray_archive.py": 1,
        "base/home/process_secrets.py": 1,
        "base/home/secrets_keys.py": 8,
        "base/home/signing.py": 4,
        "data/assets.py": 1,
        "data/blocks.py": 5,
        "data/codes.py": 1,
        "data/fetching.py": 11,
        "endpoints/actions/deployed_models.py": 1,
        "endpoints/actions/deployments.py": 1,
        "endpoints/actions/safe_models.py": 1,
        "endpoints/records/address.py": 1,
        "endpoints/router/collected_files.py": 2,
        "endpoints/router/control.py": 1,
        "endpoints/router/program.py": 3,
        "endpoints/router/table_file.py": 1,
        "endpoints/running/collection.py": 1,
        "endpoints/running/router_process.py": 3,
        "endpoints/running/watching.py": 1,
        "environments/requested_builds.py": 2,
        "jobs/admission/storage_use.py": 1,
        "jobs/attempts/endings.py": 1,
        "jobs/cleanup/disk_use.py": 2,
        "jobs/cleanup/reclaiming.py": 6,
        "jobs/cleanup/reclaiming_settings.py": 1,
        "jobs/cleanup/removal.py": 1,
        "jobs/cleanup/stale_files.py": 6,
        "jobs/cleanup/unregistered.py": 1,
        "jobs/files/build_logs.py": 1,
        "jobs/files/checkpoints.py": 1,
        "jobs/files/inputs.py": 2,
        "jobs/files/model_sources.py": 1,
        "jobs/files/run_files.py": 1,
        "jobs/records/log_order.py": 2,
        "jobs/records/logs.py": 3,
        "jobs/requests/streams.py": 1,
        "jobs/requests/workspace_lifecycle.py": 1,
        "mlflow/multipart_routes.py": 7,
        "models/onnx_files.py": 1,
        "models/signatures.py": 1,
        "releases/running/reports.py": 1,
        "releases/running/validation_jobs.py": 4,
        "servers/files.py": 3,
        "tunnels/registry.py": 1,
        "workspaces/audit.py": 4,
    },
    "files that the server's owner or the machine's administrator named": {
        "app/listeners.py": 2,
        "backups/actions.py": 9,
        "backups/archive.py": 14,
        "backups/keeper.py": 1,
        "backups/key_rotation.py": 2,
        "backups/scratch.py": 5,
        "backups/secrets.py": 3,
        "base/documents/yaml_files.py": 1,
        "base/fields.py": 1,
        "base/home/private_files.py": 1,
        "base/logins.py": 3,
        "base/machine.py": 2,
        "base/settings.py": 1,
        "base/trust.py": 3,
        "compute/sizes.py": 1,
        "environments/build/wheel_folder.py": 3,
        "environments/images/containers.py": 3,
        "base/package_sources.py": 2,
        "jobs/messages/settings.py": 1,
        "server.py": 5,
        "sign_in/provider.py": 1,
        "sign_in/routes.py": 2,
        "sign_in/settings.py": 1,
    },
    "the kernel's files, or torchyard's own program": {
        "app/monitoring/server_metrics.py": 3,
        "app/openapi_document.py": 1,
        "azureml/sdk_v1/local_runs.py": 2,
        "base/clock.py": 1,
        "batch_endpoints/running/programs.py": 2,
        "endpoints/running/programs.py": 2,
        "environments/names/components.py": 2,
        "environments/names/curated_environments.py": 5,
        "environments/names/published.py": 1,
        "environments/packages/accelerators.py": 3,
        "environments/packages/conda_channels.py": 1,
        "environments/packages/layers.py": 7,
        "environments/packages/python_choice.py": 1,
        "environments/packages/pythons.py": 1,
        "executors/bootstrap_program.py": 3,
        "executors/bundle.py": 7,
        "executors/device_locks.py": 1,
        "executors/fork_server.py": 1,
        "jobs/admission/machine.py": 1,
        "web/static_routes.py": 2,
    },
    "runs inside a job, as the job's own account": {
        "batch_endpoints/running/in_job/coordinator.py": 1,
        "batch_endpoints/running/in_job/input_files.py": 2,
        "batch_endpoints/running/in_job/main.py": 2,
        "batch_endpoints/running/in_job/progress.py": 5,
        "batch_endpoints/running/in_job/score_mlflow.py": 2,
        "batch_endpoints/running/in_job/settings.py": 4,
        "endpoints/running/in_instance/data_sidecar.py": 1,
        "endpoints/running/in_instance/score_file.py": 1,
        "endpoints/running/in_instance/score_mlflow.py": 1,
        "endpoints/running/in_instance/scoring_app.py": 1,
        "endpoints/running/in_instance/scoring_error.py": 2,
        "endpoints/running/in_instance/serving.py": 1,
        "endpoints/running/in_instance/supervise.py": 6,
        "environments/selftest/__main__.py": 1,
        "environments/selftest/in_environment/azure_steps.py": 2,
        "environments/selftest/in_environment/pairs.py": 1,
        "environments/selftest/in_environment/tool_steps.py": 1,
        "environments/selftest/running.py": 1,
        "releases/workloads/basics.py": 2,
        "releases/workloads/checks.py": 1,
        "releases/workloads/examples.py": 1,
        "releases/workloads/main.py": 2,
        "releases/workloads/training.py": 1,
        "releases/workloads/two_nodes.py": 1,
    },
    "what builds leave, which environments/build/handover.py takes over": {
        "environments/build/build_program.py": 2,
        "environments/build/builder.py": 9,
        "environments/build/builds.py": 2,
        "environments/build/bytecode.py": 2,
        "environments/build/bytecode_links.py": 14,
        "environments/build/bytecode_program.py": 4,
        "environments/build/compiling.py": 4,
        "environments/build/cuda_builds.py": 1,
        "environments/build/folders.py": 3,
        "environments/build/handover.py": 6,
        "environments/build/image_builder.py": 9,
        "environments/build/image_environments.py": 1,
        "environments/build/kept_wheels.py": 9,
        "environments/build/runner_builds.py": 5,
        "environments/build/sealed.py": 1,
        "environments/build/shared_wheels.py": 5,
        "environments/build/torchaudio_operators.py": 1,
        "environments/build/torchvision_hook.py": 2,
        "environments/build/transport.py": 7,
        "environments/conda/conda_packages.py": 6,
        "environments/conda/resolver.py": 5,
        "environments/contents.py": 3,
        "environments/copying.py": 1,
        "environments/image_export.py": 1,
        "environments/images/elf.py": 2,
        "environments/images/engine.py": 1,
        "environments/images/image_folder.py": 8,
        "environments/images/interpreter.py": 6,
        "environments/images/layer_tar.py": 4,
        "environments/images/libraries.py": 1,
        "environments/images/system_files.py": 3,
        "environments/packages/caches.py": 2,
        "environments/packages/lock.py": 14,
    },
    "folders of jobs that run as this very user; with a runner it is asked instead": {
        "executors/launch_files.py": 2,
        "executors/ray/bridge.py": 3,
        "executors/ray/bridge_program.py": 10,
        "executors/ray/engine.py": 1,
        "executors/ray/engine_programs.py": 1,
        "executors/ray/head_nodes.py": 17,
        "executors/ray/private_start.py": 8,
        "executors/ray/programs.py": 2,
        "executors/ray/ray_environment.py": 1,
        "executors/slurm/batch_script.py": 2,
        "executors/slurm/engine.py": 1,
        "executors/spawner.py": 5,
        "jobs/files/scratch.py": 3,
    },
    "by shared/beneath.py's descriptors, or a copy of the server's own": {
        "pipelines/reuse/contents.py": 1,
        "data/folders.py": 2,
        "data/remote.py": 4,
        "data/web.py": 1,
    },
}


def _opening(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls that open, list, copy or remove what a path names."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name):
            if called.id in ("open", "FileResponse"):
                yield node
            continue
        if not isinstance(called, ast.Attribute):
            continue
        owner = called.value.id if isinstance(called.value, ast.Name) else ""
        if owner == "os":
            is_opening = called.attr in _OS
        elif owner == "shutil":
            is_opening = called.attr in _SHUTIL
        else:
            is_opening = called.attr in _PATH | {"open", "ZipFile"} and owner != "webbrowser"
        if is_opening:
            yield node


def _counted() -> dict[str, int]:
    counted = {}
    for file in sorted(SOURCE.rglob("*.py")):
        module = file.relative_to(SOURCE).as_posix()
        if module.split("/")[0] in ELSEWHERE:
            continue
        number = sum(1 for _ in _opening(ast.parse(file.read_text("utf-8"))))
        if number:
            counted[module] = number
    return counted


def test_only_known_modules_open_files_by_name() -> None:
    listed = [module for modules in OPENED.values() for module in modules]
    assert len(listed) == len(set(listed)), "a module has one reason"
    expected = {module: number for modules in OPENED.values() for module, number in modules.items()}
    counted = _counted()
    changed = {
        module: (expected.get(module, 0), counted.get(module, 0))
        for module in sorted({*expected, *counted})
        if expected.get(module, 0) != counted.get(module, 0)
    }
    assert not changed, f"(listed, found) by module: {changed}; whose paths are they?"


def test_the_count_sees_each_way_to_open() -> None:
    ways = [
        "open(p)", "os.open(p, 0)", "os.scandir(p)", "os.walk(p)", "shutil.copyfile(p, q)",
        "p.open()", "p.read_bytes()", "p.rglob('*')", "p.iterdir()", "FileResponse(p)",
        "tarfile.open(p)", "zipfile.ZipFile(p)", "os.link(p, q)", "shutil.rmtree(p)",
    ]  # fmt: skip
    for way in ways:
        assert len(list(_opening(ast.parse(way)))) == 1, way


def test_the_routes_of_data_open_nothing_by_name() -> None:
    """Where people's paths come in, there is no such call at all, beside those that are counted."""
    named = {"data/asset_routes.py", "data/actions.py", "data/datastores.py", "data/routes.py",
             "data/account_folders.py", "jobs/files/outputs.py", "jobs/files/artifacts.py",
             "jobs/http/worker_routes.py", "jobs/http/file_routes.py", "jobs/http/bundle_routes.py",
             "azureml/blob/routes.py", "azureml/blob/artifact_routes.py"}  # fmt: skip
    assert not named & set(_counted())
    assert all((SOURCE / module).is_file() for module in named)
