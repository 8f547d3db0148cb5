"""The cells of the article "Train PyTorch models at scale" and of the notebook on
DistributedDataParallel: their calls, names and variables, with small scripts of our own.

    python submit_all.py <scripts> <results.json>

Owns: what a person would do in the notebooks, in the folder it is started in.
Leaves: what is right to test_v1_documents.py.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from azureml.core import Dataset, Environment, Experiment, ScriptRunConfig  # noqa: E402
from azureml.core.compute import AmlCompute, ComputeTarget  # noqa: E402
from azureml.core.compute_target import ComputeTargetException  # noqa: E402
from azureml.core.runconfig import MpiConfiguration, PyTorchConfiguration  # noqa: E402
from azureml.core.workspace import Workspace  # noqa: E402

SCRIPTS, RESULTS = sys.argv[1:]
CONDA = f"""\
channels:
- conda-forge
dependencies:
- python={sys.version_info[0]}.{sys.version_info[1]}
- pip:
  - torch==2.13.0
  - numpy
  - horovod==0.19.5
"""

seen: dict[str, Any] = {}
ws = Workspace.from_config()
project_folder = "./pytorch-birds"
os.makedirs(project_folder, exist_ok=True)
for name in os.listdir(SCRIPTS):
    if name not in (os.path.basename(__file__), "__pycache__"):
        shutil.copy(os.path.join(SCRIPTS, name), project_folder)

cluster_name = "gpu-cluster"
try:
    compute_target = ComputeTarget(workspace=ws, name=cluster_name)
except ComputeTargetException:
    compute_config = AmlCompute.provisioning_configuration(vm_size="STANDARD_NC6", max_nodes=4)
    compute_target = ComputeTarget.create(ws, cluster_name, compute_config)
    compute_target.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=20)
seen["compute"] = compute_target.get_status().serialize()

curated_env_name = "AzureML-PyTorch-1.6-GPU"
pytorch_env = Environment.get(workspace=ws, name=curated_env_name)
pytorch_env.save_to_directory(path=curated_env_name)
seen["saved"] = sorted(os.listdir(curated_env_name))
seen["clone"] = pytorch_env.clone(new_name="pytorch-1.6-gpu").name

with open("conda_dependencies.yml", "w") as file:
    file.write(CONDA)
pytorch_env = Environment.from_conda_specification(
    name="pytorch-1.6-gpu", file_path="./conda_dependencies.yml"
)
pytorch_env.docker.enabled = True
pytorch_env.docker.base_image = "mcr.microsoft.com/azureml/openmpi3.1.2-cuda10.1-cudnn7-ubuntu18.04"

data_root = "cifar-10"
os.makedirs(data_root, exist_ok=True)
with open(os.path.join(data_root, "seed.txt"), "w") as file:
    file.write("7")
datastore = ws.get_default_datastore()
dataset = Dataset.File.upload_directory(src_dir=data_root, target=(datastore, data_root))


def submit(key: str, experiment: str, **options: Any) -> None:
    src = ScriptRunConfig(
        source_directory=project_folder,
        compute_target=compute_target,
        environment=pytorch_env,
        **options,
    )
    seen[key] = Experiment(ws, name=experiment).submit(src)


submit(
    "train",
    "pytorch-birds",
    script="pytorch_train.py",
    arguments=["--num_epochs", 3, "--output_dir", "./outputs"],
)
submit(
    "horovod",
    "pytorch-birds",
    script="pytorch_horovod_mnist.py",
    distributed_job_config=MpiConfiguration(node_count=2),
)
for backend in ("Nccl", "Gloo"):
    arguments: list[str | int] = ["--dist-backend", backend.lower()]
    arguments += ["--dist-url", "$AZ_BATCHAI_PYTORCH_INIT_METHOD"]
    arguments += ["--rank", "$AZ_BATCHAI_TASK_INDEX", "--world-size", 2]
    submit(
        backend,
        "pytorch-birds",
        script="pytorch_mnist.py",
        arguments=arguments,
        distributed_job_config=PyTorchConfiguration(communication_backend=backend, node_count=2),
    )
submit(
    "per process",
    "pytorch-distr",
    script="train.py",
    arguments=["--data-dir", dataset.as_download(), "--epochs", 2],
    distributed_job_config=PyTorchConfiguration(process_count=2, node_count=2),
)
launch_cmd = [
    "python -m torch.distributed.launch --nproc_per_node 1 --nnodes 2 "
    "--node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT --use_env "
    "train.py --data-dir",
    dataset.as_download(),
    "--epochs 2",
]
submit(
    "per node",
    "pytorch-distr",
    command=launch_cmd,
    distributed_job_config=PyTorchConfiguration(node_count=2),
)

results: dict[str, Any] = {}
for key in ("train", "horovod", "Nccl", "Gloo", "per process", "per node"):
    run = seen.pop(key)
    run.wait_for_completion(show_output=True, raise_on_error=False)
    details = run.get_details()
    names = sorted(run.get_file_names())
    run.download_files(output_directory=key)
    results[key] = {
        "status": run.get_status(),
        "error": details.get("error"),
        "definition": details["runDefinition"],
        "files": names,
        "environment": run.get_environment().name,
    }
    if key == "train" and run.get_status() == "Completed":
        model = run.register_model(model_name="pytorch-birds", model_path="outputs/model.pt")
        os.makedirs("./model", exist_ok=True)
        run.download_file(name="outputs/model.pt", output_file_path="./model/model.pt")
        seen["model"] = [model.name, model.version, os.path.getsize("model/model.pt")]
        seen["of the model"] = model.run_id == run.id
with open(RESULTS, "w") as file:
    json.dump({**seen, "runs": results}, file, default=str)
