"""What the files of the deployment say, without running them."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from end_to_end.yard_under_test import REPOSITORY

_PACKAGING = REPOSITORY / "packaging"
_CONTAINERFILE = (_PACKAGING / "image" / "Containerfile").read_text()
_COMPOSE: dict[str, Any] = yaml.safe_load((_PACKAGING / "compose" / "compose.yml").read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]


def test_services_wait_for_the_health_of_what_they_need() -> None:
    needs = {name: service.get("depends_on", {}) for name, service in _SERVICES.items()}
    assert {name: list(needed) for name, needed in needs.items()} == {
        "database": [],
        "server": ["database"],
        "access": ["server"],
        "node-1": ["server"],
        "node-2": ["server"],
    }
    for needed in needs.values():
        for name, how in needed.items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in _SERVICES[name]


def test_what_ends_is_started_again() -> None:
    policies = {name: service["restart"] for name, service in _SERVICES.items()}
    assert policies.pop("access") == "on-failure"  # it has something to do once
    assert set(policies.values()) == {"unless-stopped"}


def test_only_the_owner_s_service_sees_the_home_beside_the_server_and_only_to_read() -> None:
    mounts = {
        name: [mount for mount in service.get("volumes", ()) if mount.startswith("server:")]
        for name, service in _SERVICES.items()
    }
    assert {name: found for name, found in mounts.items() if found} == {
        "server": ["server:/var/lib/torchyard"],
        "access": ["server:/var/lib/torchyard:ro"],
    }


def test_image_and_compose_file_agree_on_the_health_check_and_the_port() -> None:
    check = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", _CONTAINERFILE, re.MULTILINE)
    assert check is not None
    assert _SERVICES["server"]["healthcheck"]["test"] == ["CMD", *json.loads(check[1])]
    assert re.findall(r"^EXPOSE (.*)$", _CONTAINERFILE, re.MULTILINE) == ["8766"]
    assert _SERVICES["server"]["ports"] == ["${TORCHYARD_PORT:-8766}:8766"]


def test_the_image_s_base_is_a_choice_and_its_user_is_not_root() -> None:
    assert re.findall(r"^FROM (\S+)", _CONTAINERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert re.findall(r"^USER (.*)$", _CONTAINERFILE, re.MULTILINE) == ["10001"]


def test_the_chart_says_that_nobody_has_run_it() -> None:
    chart = _PACKAGING / "helm" / "torchyard"
    pages = [chart / "README.md", chart / "Chart.yaml", chart / "templates" / "NOTES.txt"]
    pages.append(REPOSITORY / "docs" / "guides" / "containers.md")
    for page in pages:
        assert re.search(r"untried|never run", page.read_text()), page
