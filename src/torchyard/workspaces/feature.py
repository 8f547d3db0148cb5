"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "workspace": (
            "cli.commands.workspaces",
            "Create, list and show workspaces; write config.json.",
        ),
        "user": (
            "cli.commands.users",
            "Manage the users of a shared server, their roles and tokens.",
        ),
        "quota": ("cli.commands.quotas", "Set and list quotas; request a higher one."),
    },
    routes={
        ("quotas", "quota-requests"): ["workspaces.quota_routes"],
        ("/v1/whoami", "/v1/users", "/v1/audit", "people", "audit"): ["workspaces.people_routes"],
        ("/v1/workspaces",): ["workspaces.routes"],
    },
)
