from __future__ import annotations

import json
from pathlib import Path

from jobs import support
from torchyard.base.blob_folders import BlobFolders
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.scheduler import Scheduler
from torchyard.shared.plan import InputPlan, OutputPlan, from_json


def test_a_plan_holds_all_that_a_worker_may_know(
    tmp_path: Path, db: Database, clock: FakeClock
) -> None:
    services = support.make_services(tmp_path, db, clock)
    blobs = BlobFolders(tmp_path / "blobs").of("default")
    sha256 = blobs.put_bytes(b"print(1)\n")
    entry = {"path": "train.py", "sha256": sha256, "size": 9, "mode": "0644"}
    snapshot = blobs.put_snapshot({"files": [entry]}).id
    job = support.submit(
        services,
        name="run-1",
        experiment_name="exp",
        command="python train.py ${{inputs.data}}",
        code=f"snapshot:{snapshot}",
        inputs={"data": {"path": f"snapshot:{snapshot}", "mode": "download"}, "lr": 0.1},
        outputs={"model": {"mode": "upload"}},
        environment_variables={"NCCL_DEBUG": "WARN"},
        distribution={"type": "PyTorch", "process_count_per_instance": 4},
        resources={"instance_count": 2},
        limits={"timeout": 60},
    )
    executor = FakeExecutor()
    Scheduler(services, executor, "http://127.0.0.1:1").run_round()
    plan = executor.launches[0]
    assert (plan.job, plan.world_size, plan.node_count) == ("run-1", 8, 2)
    assert (plan.code, plan.timeout_s) == (snapshot, 60.0)
    assert plan.inputs["lr"] == InputPlan("literal", "0.1", mode=plan.inputs["lr"].mode)
    assert (plan.inputs["data"].snapshot, plan.inputs["data"].mode) == (snapshot, "download")
    assert plan.outputs == {"model": OutputPlan("uri_folder", "upload")}
    assert plan.environment_variables == {"NCCL_DEBUG": "WARN"}
    variables = plan.variables
    assert variables["AZUREML_RUN_ID"] == variables["MLFLOW_RUN_ID"] == "run-1"
    assert variables["AZUREML_ARM_PROJECT_NAME"] == variables["MLFLOW_EXPERIMENT_NAME"] == "exp"
    assert variables["AZUREML_ARM_WORKSPACE_NAME"] == "default"
    assert variables["AZUREML_WORKSPACE_SCOPE"].endswith("/workspaces/default")
    assert json.loads(variables["AZUREML_CR_AZUREML_CONTEXT"])["run_id"] == "run-1"
    assert plan.report_token.startswith("yard_a_") and plan.run_token.startswith("yard_r_")
    assert from_json(plan.to_json()) == plan
    assert job.document["code"] == f"snapshot:{snapshot}"


def test_nodes_of_this_machine_make_no_copies_of_checkpoints(
    tmp_path: Path, db: Database, clock: FakeClock
) -> None:
    services = support.make_services(tmp_path, db, clock)
    support.submit(services, resources={"instance_count": 2})
    executor = FakeExecutor()
    Scheduler(services, executor, "http://127.0.0.1:1").run_round()
    assert not executor.launches[0].peer_copies
