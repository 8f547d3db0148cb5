"""What this package registers; see base/feature.py."""

from __future__ import annotations

from torchyard.base.feature import Feature

FEATURE = Feature(
    routes={
        ("environment-releases", "release-schedules", "advisories"): ["releases.routes"],
    },
    job_types={
        "validation": "releases.job_types:VALIDATIONS",
        "release": "releases.job_types:RELEASES",
    },
    keepers=["releases.running.keeper:keeping"],
    tables=["releases.records.store"],
)
