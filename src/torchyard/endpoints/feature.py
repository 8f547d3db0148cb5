"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "online-endpoint": (
            "cli.endpoints.online_endpoints",
            "Create and call endpoints, divide their traffic, get their keys.",
        ),
        "online-deployment": (
            "cli.endpoints.online_deployments",
            "Deploy models behind an endpoint; read their logs.",
        ),
    },
    routes={
        ("online-endpoints",): ["endpoints.http.routes"],
    },
    keepers=["endpoints.running.keeper:keeping"],
    tables=["endpoints.records.store"],
)
