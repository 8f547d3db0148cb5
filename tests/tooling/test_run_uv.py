"""uv finds on this machine what pip would find."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import run_uv

ROOT = Path(__file__).parents[2]
LOCKS = ["requirements.lock", "requirements-all.lock", "requirements-build.lock"]


def test_the_lock_pins_uv() -> None:
    lock = "uvicorn==0.54.0\nuv==0.13.8\n    # via torchyard\n"
    assert run_uv.locked_version("uv", lock) == "0.13.8"


def test_a_lock_without_the_package_is_an_error() -> None:
    with pytest.raises(SystemExit, match="does not pin `uv`"):
        run_uv.locked_version("uv", "uvicorn==0.54.0\n")


def test_a_package_that_is_missing_has_no_version() -> None:
    assert run_uv.installed_version("no-such-package-here") is None


def test_variables_win_over_the_command_s_section_and_that_over_the_global_one() -> None:
    listing = (
        ":env:.find-links='/from/variable'\n"
        "global.find-links='/from/global'\n"
        "install.index-url='https://install.example/simple'\n"
        "global.index-url='https://global.example/simple'\n"
        "download.index-url='https://download.example/simple'\n"
    )
    assert run_uv.read_pip_settings(listing) == {
        "find-links": "/from/variable",
        "index-url": "https://install.example/simple",
    }


def test_pip_s_settings_become_uv_s_variables() -> None:
    settings = run_uv.read_pip_settings(
        "global.index-url='https://one.example/simple'\n"
        "global.extra-index-url='\\nhttps://two.example/simple\\nhttps://three.example/simple'\n"
        "global.find-links='/wheels /more'\n"
        "global.cert='/ca.crt'\n"
        "global.trusted-host='one.example'\n"
        "global.no-index='true'\n"
        ":env:.default-timeout='180'\n"
    )
    assert run_uv.uv_environment(settings, {"HOME": "/home/somebody"}) == {
        "HOME": "/home/somebody",
        "UV_DEFAULT_INDEX": "https://one.example/simple",
        "UV_EXTRA_INDEX_URL": "https://two.example/simple https://three.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "one.example",
        "UV_BUILD_CONSTRAINT": "requirements-build.lock",
        "UV_HTTP_TIMEOUT": "60",
        "UV_NO_INDEX": "1",
        "SSL_CERT_FILE": "/ca.crt",
    }


def test_uv_s_own_variables_win() -> None:
    variables = run_uv.uv_environment(
        {"index-url": "https://pip.example/simple"},
        {"UV_DEFAULT_INDEX": "https://uv.example/simple", "UV_INDEX_STRATEGY": "first-index"},
    )
    assert variables["UV_DEFAULT_INDEX"] == "https://uv.example/simple"
    assert variables["UV_INDEX_STRATEGY"] == "first-index"


@pytest.mark.parametrize(("pip", "uv"), [("15", "15"), ("7.5", "7"), ("600", "60")])
def test_a_timeout_of_pip_s_is_capped(pip: str, uv: str) -> None:
    assert run_uv.read_pip_settings(f"global.timeout='{pip}'\n") == {"timeout": uv}


@pytest.mark.parametrize("lock", LOCKS, ids=str)
def test_the_locks_name_no_address_of_a_machine(lock: str) -> None:
    text = (ROOT / lock).read_text().replace("--hash=sha256:", "")
    assert "://" not in text
    assert "--" not in text


def test_the_lock_of_all_extras_and_groups_agrees_with_the_one_that_setup_installs() -> None:
    assert pins("requirements.lock") <= pins("requirements-all.lock")


def test_what_builds_the_package_is_pinned() -> None:
    lock = (ROOT / "requirements-build.lock").read_text()
    assert re.search(r"^hatchling==", lock, re.M) and re.search(r"^editables==", lock, re.M)


@pytest.mark.parametrize("folder", sorted((ROOT / "tests/npm").iterdir()), ids=lambda f: f.name)
def test_npm_s_locks_pin_every_package_without_a_registry(folder: Path) -> None:
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert all("integrity" in package for path, package in packages.items() if path)
    assert not [path for path, package in packages.items() if "resolved" in package]


def pins(lock: str) -> set[tuple[str, str]]:
    """Name and version of each package; a lock for every Python may have several of one."""
    return set(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), re.M))
