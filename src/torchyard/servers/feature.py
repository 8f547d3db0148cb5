"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    nouns={
        "server": (
            "cli.commands.server",
            "Start, stop, inspect and back up this machine's server.",
        ),
        "self": (
            "cli.commands.self_update",
            "Update torchyard, where uv, pipx or pip installed it.",
        ),
    },
)
