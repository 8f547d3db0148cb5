"""A script for SDK v1 on a node of another machine: its run, by its own permissions."""

import os
import warnings

from azureml.core import Dataset, Run

warnings.simplefilter("ignore")
rank = int(os.environ["RANK"])
run = Run.get_context()
assert run.id == os.environ["AZUREML_RUN_ID"], run.id
print("address", os.environ["AZUREML_SERVICE_ENDPOINT"], flush=True)
# A printed token is masked.
print("token", os.environ["AZUREML_RUN_TOKEN"], flush=True)
for step in range(3):
    run.log(f"loss-{rank}", 1 / (step + 1))
if rank == 0:
    workspace = run.experiment.workspace
    run.tag("from", "a node")
    with open("note.txt", "w") as file:
        file.write("by upload_file")
    run.upload_file("notes/note.txt", "note.txt")
    child = run.child_run("part")
    child.log("inner", 7)
    child.complete()
    assert child.parent.id == run.id, child.parent
    (file,) = Dataset.get_by_name(workspace, "engine-data").download("data", overwrite=True)
    with open(file) as opened:
        run.log("read", float(opened.read()))
os.makedirs("outputs", exist_ok=True)
with open(f"outputs/rank-{rank}.txt", "w") as file:
    file.write("done")
run.flush()
if rank == 0:
    assert run.get_metrics("read") == {"read": 4.5}, run.get_metrics()
print("all is well")
