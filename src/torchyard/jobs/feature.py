"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "job": ("cli.jobs.commands", "Submit, list, follow, cancel and download jobs."),
        "experiment": ("cli.commands.experiments", "List experiments, which group jobs."),
    },
    routes={
        ("/v1/attempts",): [
            "jobs.http.worker_routes",
            "jobs.http.node_routes",
            "jobs.http.tunnel_routes",
        ],
        ("jobs", "metrics"): [
            "jobs.http.routes",
            "jobs.http.deletion_routes",
            "jobs.http.history_routes",
            "jobs.http.file_routes",
            "interactive.job_routes",
        ],
        ("experiments",): ["jobs.http.experiment_routes"],
        ("bundle",): ["jobs.http.bundle_routes"],
        ("/v1/gc", "/v1/disk"): ["jobs.http.reclaiming_routes"],
    },
)
