"""`make release` refuses what is not ready, and changes only the version and the date."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest

import prepare_release
from prepare_release import ReleaseError

TODAY = datetime.date(2030, 1, 2)
CHANGELOG = (
    "# Changelog\n\n## 0.2.0 - Unreleased\n\n- Faster.\n\n## 0.1.0 - 2029-12-31\n\n- First.\n"
)


@pytest.mark.parametrize("version", ["0.2.0", "1.0.0rc1", "10.20.30b2"])
def test_versions_have_three_numbers(version: str) -> None:
    prepare_release.check_version(version)


@pytest.mark.parametrize("version", ["", "1.0", "v1.0.0", "1.0.0-rc1", "1.0.0.0", "1.0.0; true"])
def test_another_form_of_version_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"is not a version of the form"):
        prepare_release.check_version(version)


def test_the_section_gets_its_date() -> None:
    assert prepare_release.date_section(CHANGELOG, "0.2.0", TODAY) == CHANGELOG.replace(
        "Unreleased", "2030-01-02"
    )


def test_a_dated_section_gets_the_new_date() -> None:
    dated = prepare_release.date_section(CHANGELOG, "0.1.0", TODAY)
    assert dated == CHANGELOG.replace("2029-12-31", "2030-01-02")


def test_a_version_without_a_section_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"has no section for 0\.3\.0"):
        prepare_release.date_section(CHANGELOG, "0.3.0", TODAY)


def test_an_empty_section_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"says nothing about 0\.2\.0"):
        prepare_release.date_section(CHANGELOG.replace("- Faster.\n", ""), "0.2.0", TODAY)


def test_the_version_is_set_in_the_package() -> None:
    module = '"""torchyard."""\n\n__version__ = "0.1.0"\n__all__ = ["__version__"]\n'
    assert prepare_release.set_version(module, "0.2.0") == module.replace("0.1.0", "0.2.0")


def test_the_package_s_own_module_has_a_version_to_set() -> None:
    text = prepare_release.VERSION_FILE.read_text()
    assert '__version__ = "9.9.9"' in prepare_release.set_version(text, "9.9.9")


def test_a_module_without_a_version_is_refused() -> None:
    with pytest.raises(ReleaseError, match="has 0 lines"):
        prepare_release.set_version("", "0.2.0")


WHEEL = [
    "torchyard/__init__.py",
    "torchyard/base/py.txt",
    "torchyard/environments/layers/horovod/horovod/__init__.py",
    "torchyard-0.2.0.dist-info/METADATA",
    "torchyard-0.2.0.dist-info/licenses/LICENSE",
]
TRACKED = [
    "src/torchyard/__init__.py",
    "src/torchyard/base/py.txt",
    "compat/horovod/src/horovod/__init__.py",
]


def test_a_wheel_that_holds_what_is_tracked_is_good() -> None:
    assert prepare_release.compare_wheel(WHEEL, TRACKED) == []


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        (WHEEL[1], "missing: src/torchyard/base/py.txt"),
        (WHEEL[2], "missing: compat/horovod/src/horovod/__init__.py"),
        (WHEEL[4], "missing: the license"),
    ],
)
def test_a_file_that_the_wheel_lacks_is_named(missing: str, problem: str) -> None:
    paths = [path for path in WHEEL if path != missing]
    assert prepare_release.compare_wheel(paths, TRACKED) == [problem]


def test_a_file_that_git_does_not_track_is_named() -> None:
    assert prepare_release.compare_wheel([*WHEEL, "torchyard/notes.txt"], TRACKED) == [
        "not tracked by git: torchyard/notes.txt"
    ]


def repository(folder: Path) -> None:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)


def test_uncommitted_changes_are_refused(tmp_path: Path) -> None:
    repository(tmp_path)
    (tmp_path / "new.py").touch()
    with pytest.raises(ReleaseError, match=r"(?s)uncommitted changes.*new\.py"):
        prepare_release.check_repository("0.2.0", tmp_path)


def test_a_tagged_version_is_refused(tmp_path: Path) -> None:
    repository(tmp_path)
    prepare_release.check_repository("0.2.0", tmp_path)
    subprocess.run(["git", "tag", "v0.2.0"], cwd=tmp_path, check=True)
    with pytest.raises(ReleaseError, match=r"0\.2\.0 is tagged already"):
        prepare_release.check_repository("0.2.0", tmp_path)


def test_a_release_without_a_version_says_how_to_give_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert prepare_release.main([""]) == 2
    assert "make release VERSION=0.2.0" in capsys.readouterr().err
