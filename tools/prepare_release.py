"""Prepare a release: set the version, date the changelog, check, build, and try the wheel.

.venv/bin/python tools/prepare_release.py 0.2.0     # or `make release VERSION=0.2.0`

Owns: what must hold before a version is tagged. See docs/contributing/releasing.md.
Leaves: committing, tagging and publishing to a person; the commands are printed at the end.
Always: a step that fails leaves the tracked files as they were.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAIN = "packaging/train"
VERSION_FILE = ROOT / "src/torchyard/__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
DIST = ROOT / "dist"
RUN_UV = (sys.executable, "tools/run_uv.py")

_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_EXAMPLE = re.compile(r'^"(examples/[^"]+)" = ', re.MULTILINE)
_VERSION_LINE = re.compile(r'^__version__ = "[^"]*"$', re.MULTILINE)


class ReleaseError(Exception):
    """What keeps this version from being released, and the next step."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) != 1 or not arguments[0]:
            raise ReleaseError("a release needs one version", "run `make release VERSION=0.2.0`")
        prepare(arguments[0], datetime.datetime.now(datetime.timezone.utc).date())
    except ReleaseError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 2
    return 0


def prepare(version: str, today: datetime.date) -> None:
    """Do every step of a release that publishes nothing."""
    check_version(version)
    check_repository(version)
    original_texts = {path: path.read_text() for path in (VERSION_FILE, CHANGELOG)}
    dated_changelog = date_section(original_texts[CHANGELOG], version, today)
    versioned_module = set_version(original_texts[VERSION_FILE], version)
    try:
        CHANGELOG.write_text(dated_changelog)
        VERSION_FILE.write_text(versioned_module)
        run("make", "--no-print-directory", "check")
        wheel = build(version)
        check_wheel(wheel)
        try_wheel(wheel, version)
    except BaseException:
        for path, text in original_texts.items():
            path.write_text(text)
        raise
    print(NEXT_STEPS.format(version=version))


def check_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise ReleaseError(
            f"`{version}` is not a version of the form 1.2.3 or 1.2.3rc1",
            "see docs/contributing/releasing.md for which number to raise",
        )


def check_repository(version: str, root: Path = ROOT) -> None:
    """Check that nothing is uncommitted and that the version is not tagged."""
    changes = output("git", "status", "--porcelain", cwd=root)
    if changes:
        raise ReleaseError(
            f"the working tree has uncommitted changes:\n{changes}", "commit or stash them first"
        )
    if output("git", "tag", "--list", f"v{version}", cwd=root):
        raise ReleaseError(f"version {version} is tagged already", "choose the next version")


def date_section(changelog: str, version: str, today: datetime.date) -> str:
    """Return the changelog with today's date at the version's heading."""
    heading = re.compile(
        rf"^## {re.escape(version)} - (Unreleased|\d{{4}}-\d\d-\d\d)\n(?P<body>.*?)(?=^## |\Z)",
        re.MULTILINE | re.DOTALL,
    )
    section = heading.search(changelog)
    if section is None:
        raise ReleaseError(
            f"CHANGELOG.md has no section for {version}",
            f"begin one with the line `## {version} - Unreleased`",
        )
    if not section["body"].strip():
        raise ReleaseError(
            f"CHANGELOG.md says nothing about {version}", "say what changed for users"
        )
    return f"{changelog[: section.start(1)]}{today.isoformat()}{changelog[section.end(1) :]}"


def set_version(module: str, version: str) -> str:
    """Return the text of the package's `__init__.py` with this version."""
    text, count = _VERSION_LINE.subn(f'__version__ = "{version}"', module)
    if count != 1:
        raise ReleaseError(
            f"{VERSION_FILE.relative_to(ROOT)} has {count} lines that set `__version__`",
            "it must have exactly one",
        )
    return text


def build(version: str) -> Path:
    """Build the sdist and, from it, the wheel, and that of torchyard-train; return the wheel."""
    for old in DIST.glob("torchyard[-_]*"):
        old.unlink()
    run(*RUN_UV, "build", "--quiet", "--out-dir", str(DIST))
    run(*RUN_UV, "build", "--quiet", "--wheel", "--out-dir", str(DIST), str(ROOT / TRAIN))
    wheel = DIST / f"torchyard-{version}-py3-none-any.whl"
    train = DIST / f"torchyard_train-{version}-py3-none-any.whl"
    for path in (wheel, DIST / f"torchyard-{version}.tar.gz", train):
        if not path.is_file():
            raise ReleaseError(f"the build made no {path.name}", "read its output above")
    return wheel


def check_wheel(wheel: Path) -> None:
    """Check that the wheel holds what git tracks of the package, the layers, the examples that
    validations run, and no more.
    """
    examples = _EXAMPLE.findall((ROOT / "pyproject.toml").read_text())
    parts = ("src/torchyard", "compat/*/src/*", *examples)
    tracked_paths = output("git", "ls-files", *parts).splitlines()
    with zipfile.ZipFile(wheel) as archive:
        wheel_paths = archive.namelist()
    problems = compare_wheel(wheel_paths, tracked_paths)
    if problems:
        raise ReleaseError(
            "the wheel does not hold what it should:\n" + "\n".join(problems),
            "see [tool.hatch.build] in pyproject.toml",
        )


def compare_wheel(wheel_paths: Iterable[str], tracked_paths: Iterable[str]) -> list[str]:
    """Return one line for each file that is missing from the wheel or too much in it.

    The packages of `compat/`, and examples, lie inside of torchyard in the wheel, in any folder
    that ends with their name.
    """
    in_wheel = {path for path in wheel_paths if ".dist-info/" not in path}
    problems = (
        []
        if any(path.endswith("/licenses/LICENSE") for path in wheel_paths)
        else ["missing: the license"]
    )
    for path in sorted(tracked_paths):
        if path.startswith("src/"):
            paths = {path.removeprefix("src/")} & in_wheel
        else:
            _, layer, _, inside = path.split("/", 3)
            paths = {file for file in in_wheel if file.endswith(f"/{layer}/{inside}")}
        if not paths:
            problems.append(f"missing: {path}")
        in_wheel -= paths
    return problems + [f"not tracked by git: {path}" for path in sorted(in_wheel)]


def try_wheel(wheel: Path, version: str) -> None:
    """Install the wheel into a fresh environment, with what it depends on, and run it there."""
    with tempfile.TemporaryDirectory(prefix="torchyard-release-") as folder:
        environment = Path(folder) / "venv"
        python = environment / "bin/python"
        run(*RUN_UV, "venv", "--quiet", "--python", sys.executable, str(environment))
        run(*RUN_UV, "pip", "install", "--quiet", "--python", str(python), str(wheel))
        run(*RUN_UV, "pip", "check", "--quiet", "--python", str(python))
        run(str(python), "-c", "from torchyard import Client, Input, Output, command", cwd=folder)
        run(str(environment / "bin/yard-server"), "--help", cwd=folder, quiet=True)
        printed = output(str(environment / "bin/yard"), "--version", cwd=folder)
    if printed != f"yard {version}":
        raise ReleaseError(
            f"`yard --version` of the wheel prints `{printed}`", "look at what the wheel holds"
        )


def run(*command: str, cwd: str | Path = ROOT, quiet: bool = False) -> None:
    print("$", *command, flush=True)
    code = subprocess.call(command, cwd=cwd, stdout=subprocess.DEVNULL if quiet else None)
    if code:
        raise ReleaseError(
            f"`{' '.join(command)}` ended with {code}", "mend what it says above, and try again"
        )


def output(*command: str, cwd: str | Path = ROOT) -> str:
    completed = subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    return completed.stdout.strip()


NEXT_STEPS = """
torchyard {version} is built and checked in dist/. Nothing is published yet. Next:

  git commit -am 'Release {version}'
  git tag -a v{version} -m 'torchyard {version}'
  git push origin HEAD v{version}
  .venv/bin/uv publish dist/torchyard*-{version}*
"""

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
