"""uv finds on this machine what pip would find."""

from __future__ import annotations

from pathlib import Path

import pytest

import run_uv

ROOT = Path(__file__).parents[2]


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
        "UV_HTTP_TIMEOUT": "180",
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


def test_the_lock_names_no_address_of_a_machine() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--" not in lock
