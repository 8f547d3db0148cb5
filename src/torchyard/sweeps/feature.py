"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    routes={
        ("sweeps",): ["sweeps.http.routes"],
    },
    job_types={"sweep": "sweeps.actions:JOBS"},
    job_pages={"sweep": "cli.jobs.sweep_page:below"},
    azure_jobs={"sweep": "azureml.arm.sweep_jobs:SWEEPS"},
    keepers=["sweeps.running.keeper:keeping"],
    tables=["sweeps.records.trial_store"],
)
