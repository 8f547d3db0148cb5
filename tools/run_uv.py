"""Run uv in the version that requirements.lock names, with the package sources that pip has here.

.venv/bin/python tools/run_uv.py pip install --no-deps -r requirements.lock -e .

Owns: bringing uv into the virtual environment by pip, pip's configuration as uv's variables, the
versions of what builds packages, and trying again after a failure.
Leaves: making the environment and what to install to the Makefile; how often to try to retry.py.
Always: standard library only, because nothing else is installed yet. An address that pip's
configuration names reaches uv through its environment and is written nowhere.

Sources: https://pip.pypa.io/en/stable/topics/configuration/,
https://docs.astral.sh/uv/reference/environment/
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import retry

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
# Below ROOT, where uv runs: uv takes a space in it for the end of a path.
BUILD_LOCK = "requirements-build.lock"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
# A connection that stands still for longer than this is tried again, whatever pip is told.
LONGEST_TIMEOUT_S = 60

# pip's key, uv's variable, and what separates several values there.
UV_VARIABLES = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_EXTRA_INDEX_URL", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("proxy", "HTTPS_PROXY", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
)


def main() -> int:
    listing = subprocess.run([*PIP, "config", "list"], check=True, capture_output=True, text=True)
    settings = read_pip_settings(listing.stdout)
    version = locked_version("uv", LOCK.read_text())
    if installed_version("uv") != version:
        timeout = ("--timeout", settings["timeout"]) if "timeout" in settings else ()
        code = retry.run([*PIP, "install", "-qq", *timeout, f"uv=={version}"])
        if code:
            return code
    environment = uv_environment(settings, os.environ)
    # What `uv pip` installs goes into the environment that runs this, whichever is active.
    environment["VIRTUAL_ENV"] = sys.prefix
    uv = Path(sys.executable).with_name("uv")
    return retry.run([uv, *sys.argv[1:]], cwd=ROOT, env=environment)


def locked_version(package: str, lock: str) -> str:
    """Return the version that the text of a lock pins a package to."""
    pin = re.search(rf"^{re.escape(package)}==(\S+)", lock, re.MULTILINE)
    if pin is None:
        raise SystemExit(f"error: {LOCK.name} does not pin `{package}`")
    return pin[1]


def installed_version(package: str) -> str | None:
    """Return the version of a package in this environment, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def read_pip_settings(listing: str) -> dict[str, str]:
    """Read the output of `pip config list`: `global.find-links='/wheels'` and the like, by key.

    As in pip, the section of the command wins over `[global]`, and PIP_* variables over both.
    """
    settings: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section):
                settings[name.removeprefix(section)] = ast.literal_eval(value)
    if "default-timeout" in settings:
        settings.setdefault("timeout", settings["default-timeout"])
    if "timeout" in settings:
        settings["timeout"] = capped_timeout(settings["timeout"])
    return settings


def capped_timeout(seconds: str) -> str:
    """Return pip's timeout in whole seconds, as uv wants it, and not above the longest."""
    return str(min(int(float(seconds)), LONGEST_TIMEOUT_S))


def uv_environment(
    pip_settings: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment for uv's process; what it says of uv already is left as it is."""
    variables = dict(environment)
    for key, variable, separator in UV_VARIABLES:
        if pip_settings.get(key):
            variables.setdefault(variable, separator.join(pip_settings[key].split()))
    if pip_settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        variables.setdefault("UV_NO_INDEX", "1")
    variables.setdefault("UV_BUILD_CONSTRAINT", BUILD_LOCK)
    # pip takes the best version of all its indexes; uv alone would stop at the first.
    variables.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return variables


if __name__ == "__main__":
    raise SystemExit(main())
