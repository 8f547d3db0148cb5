"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "data": ("cli.commands.data", "Register, list and download data assets."),
        "datastore": (
            "cli.commands.datastores",
            "Create, list and delete datastores: folders, buckets, containers.",
        ),
    },
    routes={
        ("blobs", "snapshots"): ["data.routes"],
        ("data", "datastores", "url-maps"): ["data.asset_routes"],
    },
)
