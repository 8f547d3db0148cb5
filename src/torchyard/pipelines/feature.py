"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    routes={
        ("pipelines", "explanations"): ["pipelines.http.routes"],
    },
    job_types={"pipeline": "pipelines.actions:JOBS"},
    job_pages={"pipeline": "cli.jobs.pipeline_page:below"},
    azure_jobs={"pipeline": "azureml.arm.pipeline_jobs:PIPELINES"},
    keepers=["pipelines.running.keeper:keeping"],
    tables=["pipelines.records.step_store"],
)
