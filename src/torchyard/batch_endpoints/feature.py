"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "batch-endpoint": (
            "cli.batch_endpoints.endpoints",
            "Create endpoints that score many files, and invoke them.",
        ),
        "batch-deployment": (
            "cli.batch_endpoints.deployments",
            "Deploy models behind a batch endpoint.",
        ),
    },
    routes={
        ("batch-endpoints",): ["batch_endpoints.http.routes"],
    },
    tables=["batch_endpoints.records.store"],
)
