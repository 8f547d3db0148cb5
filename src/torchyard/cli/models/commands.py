"""`yard model …`."""

from __future__ import annotations

from torchyard.cli.assets import verbs
from torchyard.cli.models import onnx_export, score
from torchyard.cli.models.deploy import deploy
from torchyard.cli.parsing.group import noun
from torchyard.cli.terminal import next_steps, tables

group = noun("model")

_COLUMNS: list[tables.Column] = [
    ("NAME", lambda model: model["name"]),
    ("VERSION", lambda model: model.get("version")),
    ("TYPE", lambda model: model.get("type")),
    ("JOB", lambda model: model.get("job") or model.get("job_name")),
    ("CREATED", lambda model: tables.moment(model.get("created_at"))),
    ("DESCRIPTION", lambda model: model.get("description")),
]

verbs.add(
    group,
    verbs.Kind(
        noun="model",
        attribute="models",
        word="model",
        types="custom_model or mlflow_model",
        example="digits",
        path_example="azureml://jobs/brave-otter/outputs/artifacts/paths/outputs/model.pt",
        columns=_COLUMNS,
        next_steps=next_steps.after_model,
    ),
)

group.add_command(deploy)
group.add_command(onnx_export.export_onnx)
group.add_command(score.score)
