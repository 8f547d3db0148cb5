"""Times as Slurm writes them: `90`, `30:00`, `2:00:00`, `1-12`, `1-12:30:00`, `UNLIMITED`."""

from __future__ import annotations

import re

UNLIMITED = float("inf")
_FORM = re.compile(r"(?:(?P<days>\d{1,6})-)?(?P<rest>\d{1,9}(?::\d{1,9}){0,2})")


def seconds(text: str) -> float:
    """How long; infinity for UNLIMITED, 0 for what is not such a time."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return UNLIMITED
    match = _FORM.fullmatch(text)
    if match is None:
        return 0.0
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"] is not None:
        hours, minutes, rest = (*parts, 0, 0, 0)[:3]
        return float(int(match["days"]) * 86400 + hours * 3600 + minutes * 60 + rest)
    if len(parts) == 1:
        return float(parts[0] * 60)
    hours, minutes, rest = (0, *parts)[-3:]
    return float(hours * 3600 + minutes * 60 + rest)
