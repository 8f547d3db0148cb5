"""Jobs that run until a test lets them end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.shared_site import SharedSite

_COMMAND = "echo weights > outputs/model.txt; while [ ! -e {flag} ]; do sleep 0.05; done"


def start_waiting(site: SharedSite, person: str, **job: Any) -> tuple[str, Path, Path]:
    """A job that runs until its flag appears; its name, its flag and its scratch folder."""
    flags = site.folder / "flags"
    flags.mkdir(exist_ok=True)
    flags.chmod(0o1777)
    before = site.attempts()
    flag = flags / f"{person}-{len(list(flags.parent.glob('flags/*')))}-{len(before)}"
    name = site.submit(person, _COMMAND.format(flag=flag), **job)
    site.wait(name, "Running")
    [scratch] = set(site.attempts()) - set(before)
    return name, flag, scratch
