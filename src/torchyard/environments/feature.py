"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "environment": (
            "cli.environments.commands",
            "Register, list, build and export environments; open a shell in one.",
        ),
    },
    routes={
        ("environments",): ["environments.routes"],
    },
)
