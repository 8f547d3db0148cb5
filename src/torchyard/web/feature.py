"""What the page registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    routes={
        ("events",): ["web.event_routes"],
    },
)
