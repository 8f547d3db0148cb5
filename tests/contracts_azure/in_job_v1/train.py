"""A training script as people wrote it for SDK v1: its own run, by every way there is to log."""

import os
import warnings

from azureml.core import Run

warnings.simplefilter("ignore")
run = Run.get_context()
assert run.id == os.environ["AZUREML_RUN_ID"], run.id
for step in range(3):
    run.log("loss", 1 / (step + 1))
run.log("accuracy", 0.9)
run.log("word", "hello")
run.log("count", 3)
run.log("whole", 2.0)
run.log("flag", True)
run.log_list("several", [1, 2, 3.5])
run.log_row("row", x=1, y=2.5)
run.log_row("row", x=2, y=3.5)
run.log_table("table", {"a": [1, 2], "b": [3, 4]})
run.log_confusion_matrix(
    "matrix",
    {
        "schema_type": "confusion_matrix",
        "schema_version": "v1",
        "data": {"class_labels": ["0", "1"], "matrix": [[3, 2], [1, 4]]},
    },
)
run.log_accuracy_table(
    "accuracies",
    {
        "schema_type": "accuracy_table",
        "schema_version": "1.0.1",
        "data": {
            "probability_tables": [[[1, 2, 3, 4]]],
            "percentile_tables": [[[1, 2, 3, 4]]],
            "probability_thresholds": [0.5],
            "percentile_thresholds": [0.5],
            "class_labels": ["0"],
        },
    },
)
run.log_residuals(
    "residuals",
    {
        "schema_type": "residuals",
        "schema_version": "v1",
        "data": {"bin_edges": [0, 1, 2], "bin_counts": [3, 4]},
    },
)
run.log_predictions(
    "predictions",
    {
        "schema_type": "predictions",
        "schema_version": "v1",
        "data": {
            "bin_averages": [1, 2],
            "bin_errors": [0.1, 0.2],
            "bin_counts": [3, 4],
            "bin_edges": [0, 1, 2],
        },
    },
)
with open("image.png", "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n")
run.log_image("image", path="image.png")
run.tag("from", "the job")
run.set_tags({"more": "yes"})
os.makedirs("outputs", exist_ok=True)
for path in ("outputs/model.pt", "other.txt"):
    with open(path, "w") as file:
        file.write("weights")
run.upload_file("other/other.txt", "other.txt")
run.upload_folder("folder", "outputs")
model = run.register_model("v1-in-job", "folder/model.pt")
print("model", model.id, "in", run.experiment.name, run.experiment.workspace.name)
run.flush()
assert run.get_metrics("accuracy") == {"accuracy": 0.9}, run.get_metrics("accuracy")
run.complete()
print("all is well")
