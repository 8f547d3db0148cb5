"""What this repository installs and runs of others is what was looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# What the targets of the Makefile install. torch is in none: it comes from the machine's own links.
LOCKS = sorted(ROOT.glob("requirements*.lock"))
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==\S+", re.MULTILINE)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_pinned_by_their_commit(workflow: Path) -> None:
    actions = re.findall(r"uses: *(\S+)", workflow.read_text())
    assert [action for action in actions if not re.search(r"@[0-9a-f]{40}$", action)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda file: file.name)
def test_locks_carry_hashes(lock: Path) -> None:
    # A pin and, on the lines after it, its hashes.
    pins = re.split(r"^(?=[A-Za-z0-9])", lock.read_text(), flags=re.MULTILINE)
    names = {match[1] for pin in pins if (match := _PIN.match(pin)) and "--hash=sha256:" not in pin}
    assert names == set()
