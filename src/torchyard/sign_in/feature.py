"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    routes={
        ("/v1/sign-in",): ["sign_in.routes", "web.session_routes"],
    },
)
