"""From one version of an environment to the next, for real; three planted faults each stop it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard
from environments import wheels
from torchyard.environments.images import image_folder

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

# What a team would write: it asserts what its own package comes to.
WORKLOAD = """
import samplelib
from torchyard_validation import checks


def run():
    return {"accuracy": checks.at_least("accuracy", samplelib.accuracy(), 0.95)}
"""


def put(folder: Path, version: str, accuracy: float = 0.97) -> None:
    text = f"__version__ = {version!r}\n\n\ndef accuracy():\n    return {accuracy}\n"
    wheels.put(folder, "samplelib", version, text=text)


def advisory(package: str, versions: list[str], days: int) -> dict[str, Any]:
    published = datetime.now(timezone.utc) - timedelta(days=days)
    affected = {"package": {"ecosystem": "PyPI", "name": package}, "versions": versions}
    return {
        "id": "CVE-2026-1",
        "summary": "runs code of strangers",
        "published": published.isoformat(),
        "affected": [affected],
    }


@pytest.fixture(scope="module")
def release_home(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels, two environments built of it, a workload, advisories."""
    release_home = tmp_path_factory.mktemp("releases")
    put(release_home / "wheels", "1.0")
    requirements = release_home / "requirements.txt"
    requirements.write_text(f"--find-links {release_home / 'wheels'}\nsamplelib>=1,<3\n")
    for name in ("team", "samplelib-1.0"):
        yard("environment", "create", "-n", name, "--pip-requirements", str(requirements))
        yard("environment", "build", name)
    (release_home / "workloads").mkdir()
    (release_home / "workloads" / "team_accuracy.py").write_text(WORKLOAD)
    (release_home / "osv.json").write_text(json.dumps([advisory("other", ["1"], 90)]))
    return release_home


def release(
    yard: Yard, release_home: Path, name: str, *more: str, expect: int = 0
) -> dict[str, Any]:
    only = "interpreter,requested-imports,team_accuracy"
    printed = yard(
        "environment", "release", name, "--only", only,
        "--workloads", str(release_home / "workloads"), "-o", "json", *more,
        expect=expect,
    )  # fmt: skip
    shown: dict[str, Any] = json.loads(printed)
    return shown


def versions(yard: Yard, name: str) -> list[str]:
    listed = json.loads(yard("environment", "list", "-n", name, "-o", "json"))
    return [row["version"] for row in listed]


def test_releases_and_what_stops_them(yard: Yard, release_home: Path) -> None:
    put(release_home / "wheels", "2.0")
    made = release(yard, release_home, "team", "--osv", str(release_home / "osv.json"))
    assert made["version"] == "2"
    assert made["changelog"] == "samplelib: 1.0 → 2.0"
    figures = {row["name"]: row["figures"] for row in made["report"]["workloads"]}
    assert figures["team_accuracy"] == {"accuracy": 0.97}
    assert made["report"]["hardware"][0]["cores"] >= 1
    assert [gate["status"] for gate in made["gates"]] == ["passed"] * 6

    # Both versions run, the old one also once it is archived.
    yard("environment", "archive", "-n", "team", "-v", "1")
    assert versions(yard, "team") == ["2"]
    for version in ("1", "2"):
        command = "python -c 'import samplelib; print(samplelib.__version__)'"
        job = json.dumps(
            {"command": command, "environment": f"azureml:team:{version}", "name": f"old-{version}"}
        )
        (release_home / "job.yml").write_text(job)
        yard("job", "create", "-f", str(release_home / "job.yml"), "--stream")
        assert yard.logs_of_attempts(f"old-{version}") == [f"{version}.0\n"]

    yard("environment", "page", "team:2", "-f", str(release_home / "page.md"))
    page = (release_home / "page.md").read_text()
    assert page.startswith("# team:2\n")
    assert "| `team_accuracy` | passed | accuracy 0.97 |" in page
    assert "The environment answers what the label says: " in page
    assert "- samplelib: 1.0 → 2.0" in page and "`samplelib==2.0`" in page
    assert "against 1 advisories of " in page and " 0 findings" in page

    # The build and the index are gone: its wheels were kept.
    [row] = json.loads(yard("environment", "wheels", "team", "-o", "json"))
    assert row["version"] == "2" and row["size_bytes"] > 0
    shown = json.loads(yard("environment", "show", "team:2", "-o", "json"))
    folder = yard.home / "environments" / shown["hash"]
    image_folder.remove(folder)
    (release_home / "wheels").rename(release_home / "gone")
    yard("environment", "build", "team:2")
    assert list(folder.glob("lib/python3*/site-packages/samplelib-2.0.dist-info"))
    (release_home / "gone").rename(release_home / "wheels")

    # A wrong label: its name says what it holds no more.
    refused = release(yard, release_home, "samplelib-1.0", expect=1)
    assert "the name says samplelib 1.0, and the build holds 2.0" in refused["error"]["message"]
    assert versions(yard, "samplelib-1.0") == ["1"]

    # A Python that its name doesn't say.
    yard(
        "environment",
        "create",
        "-n",
        "team-py36",
        "--pip-requirements",
        str(release_home / "requirements.txt"),
    )
    refused = release(yard, release_home, "team-py36", expect=1)
    assert (
        "gate `label`: the name says Python 3.6, and the build holds 3."
        in refused["error"]["message"]
    )
    assert versions(yard, "team-py36") == ["1"]

    # A package with a known vulnerability, older than 30 days.
    put(release_home / "wheels", "2.1")
    (release_home / "osv.json").write_text(json.dumps([advisory("samplelib", ["2.1"], 40)]))
    refused = release(yard, release_home, "team", "--osv", str(release_home / "osv.json"), expect=1)
    assert "gate `audit`: samplelib 2.1: CVE-2026-1 (40 days old)" in refused["error"]["message"]
    assert versions(yard, "team") == ["2"]

    # A package by which training loses accuracy; the vulnerability is excused for a week.
    put(release_home / "wheels", "2.2", accuracy=0.41)
    refused = release(yard, release_home, "team", expect=1)
    message = refused["error"]["message"]
    assert "gate `validate`: team_accuracy: accuracy is 0.41, below 0.95" in message
    assert versions(yard, "team") == ["2"]
    listed = json.loads(yard("environment", "releases", "team", "-o", "json"))
    assert [row["status"] for row in listed] == ["Failed", "Failed", "Completed"]


def test_what_only_the_environment_itself_can_answer(yard: Yard, release_home: Path) -> None:
    text = (
        "class version:\n    cuda = '12.6'\n\n\nclass cuda:\n"
        "    is_available = staticmethod(lambda: False)\n\n\n__version__ = '9.9.0'\n"
    )
    wheels.put(release_home / "sham", "torch", "9.9.0", text=text)
    requirements = release_home / "sham.txt"
    requirements.write_text(f"--find-links {release_home / 'sham'}\ntorch==9.9.0\n")
    for name, expect in (("sham-cuda12.6", 0), ("sham-cuda12.1", 1)):
        yard("environment", "create", "-n", name, "--pip-requirements", str(requirements))
        validate = ("environment", "validate", name, "--only", "interpreter", "-o", "json")
        validated = json.loads(yard(*validate, expect=expect))
        assert validated["report"], validated
        assert validated["report"]["label"]["cuda"] == "12.6"
        assert validated["report"]["label"]["packages"]["torch"] == "9.9.0"
    assert validated["report"]["label"]["differences"] == [
        "the name says cuda 12.1, and the build holds 12.6"
    ]
    assert "wrong label: the name says cuda 12.1" in validated["error"]["message"]


def test_an_audit_shows_what_excuses_and_writes_a_bill_of_materials(
    yard: Yard, release_home: Path
) -> None:
    (release_home / "osv.json").write_text(json.dumps([advisory("samplelib", ["1.0"], 40)]))
    audit = ("environment", "audit", "samplelib-1.0", "--osv", str(release_home / "osv.json"))
    printed = yard(*audit, expect=1)
    assert "FAIL" in printed and "CVE-2026-1" in printed and "40 days" in printed
    day = (datetime.now(timezone.utc) + timedelta(days=7)).date().isoformat()
    exceptions = release_home / "exceptions.yml"
    exceptions.write_text(
        f"exceptions:\n- {{id: CVE-2026-1, reason: only its server, review_by: {day}}}\n"
    )
    sbom = release_home / "sbom.json"
    printed = yard(*audit, "--exceptions", str(exceptions), "--sbom", str(sbom))
    assert f"exception until {day}: only its server" in printed
    bill = json.loads(sbom.read_text())
    [component] = [each for each in bill["components"] if each["name"] == "samplelib"]
    assert len(component["hashes"][0]["content"]) == 64
    exceptions.write_text("exceptions:\n- {id: CVE-2026-1, review_by: 2030-01-01}\n")
    yard(*audit, "--exceptions", str(exceptions), expect=2)
