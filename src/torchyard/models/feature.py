"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "model": ("cli.models.commands", "Register, list, download and deploy models."),
    },
    routes={
        ("models",): ["models.routes"],
    },
)
