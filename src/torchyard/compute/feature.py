"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "compute": ("cli.compute.commands", "Create, list, resize and check clusters of nodes."),
        "node": (
            "cli.compute.nodes",
            "Make this machine a node of a cluster; list, drain and remove machines.",
        ),
    },
    routes={
        ("computes", "compute-sizes"): ["compute.routes", "jobs.http.cluster_routes"],
        ("machines", "/v1/invitations"): ["compute.machine_routes"],
    },
)
