"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "component": (
            "cli.commands.components",
            "Register and list components, the steps of pipelines.",
        ),
    },
    routes={
        ("components",): ["components.routes"],
    },
)
