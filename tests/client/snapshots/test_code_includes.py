"""What `additional_includes` put beside the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec, LimitExceeded
from torchyard.client.snapshots import job_files
from torchyard.client.snapshots.walk import Limits

AT = ("additional_includes", 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A component's, with code in `src` and more in `../common` and `../tools.py`."""
    for path in ("own/src/train.py", "common/deep/a.py", "common/b.log", "tools.py", "train.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "common" / ".amlignore").write_text("*.log\nleft.py\n.amlignore\n")
    (tmp_path / "common" / "left.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own"


def component(*includes: Any, **keys: Any) -> dict[str, Any]:
    return {"command": "ls", "additional_includes": [*includes], **keys}


def contents(files: job_files.JobFiles, folder: Path) -> dict[str, str]:
    """The files of the only snapshot, by their paths, as an upload reads them."""
    (path,) = files.paths
    taken = path.take(folder / "index")
    return {each.path: Path(each.place).read_text() for each in taken.contents()}


@pytest.mark.parametrize("kind", ["job", "component", "sweep"])
def test_includes_stand_beside_the_code_under_their_own_names(folder: Path, kind: str) -> None:
    document = component("../common", "../tools.py", code="./src")
    if kind == "sweep":
        document = {"type": "sweep", "trial": document}
    elif kind == "component":
        document |= {"type": "command", "name": "train", "inputs": {"x": {"type": "integer"}}}
    files = job_files.find(document, folder)
    part = files.document["trial"] if kind == "sweep" else files.document
    assert part["code"] == "local:./src" and "additional_includes" not in part
    assert contents(files, folder) == {
        "train.py": "own/src/train.py",
        "common/deep/a.py": "common/deep/a.py",
        "tools.py": "tools.py",
    }


def test_includes_alone_are_the_code(folder: Path) -> None:
    files = job_files.find(component("../common/deep/", "../tools.py"), folder)
    assert files.document["code"] == "local:."
    assert contents(files, folder) == {"deep/a.py": "common/deep/a.py", "tools.py": "tools.py"}


def test_an_include_that_changed_is_read_again(folder: Path) -> None:
    document = component("../tools.py", code="src")
    before = job_files.find(document, folder).paths[0].take(folder / "index")
    (folder.parent / "tools.py").write_text("changed")
    after = job_files.find(document, folder).paths[0].take(folder / "index")
    assert before.manifest != after.manifest


def test_what_an_ignore_file_of_an_include_leaves_out_is_recorded(folder: Path) -> None:
    files = job_files.find(component("../common"), folder)
    assert files.left_out == {"common/left.py": "common/.amlignore:2"}


def test_includes_of_a_component_file_are_relative_to_it(folder: Path) -> None:
    (folder / "train.yml").write_text(
        "command: ls\ncode: src\nadditional_includes:\n  - ../tools.py\n"
    )
    (folder / "train.additional_includes").write_text("../common\n\n")
    document = {"jobs": {"train": {"component": "own/train.yml"}}}
    files = job_files.find(document, folder.parent)
    assert "additional_includes" not in files.document["jobs"]["train"]["component"]
    assert set(contents(files, folder)) == {"train.py", "tools.py", "common/deep/a.py"}


def test_a_list_beside_a_components_file_is_read(folder: Path) -> None:
    (folder / "train.additional_includes").write_text("../tools.py\n../no.py\n")
    document = {"name": "train", "command": "ls"}
    with pytest.raises(InvalidSpec, match=r"^own/train.additional_includes:2:1: .*no\.py") as error:
        job_files.find(document, folder, file=folder / "train.yml")
    assert error.value.at == ("additional_includes", 1)
    (folder / "train.additional_includes").write_text("../tools.py\n")
    files = job_files.find(document, folder, file=folder / "train.yml")
    assert contents(files, folder) == {"tools.py": "tools.py"}


@pytest.mark.parametrize(
    ("includes", "message"),
    [
        (["../train.py"], "`src` and the include `../train.py` both bring `train.py`"),
        (["../tools.py", "./tools.py"], "`../tools.py` and the include `./tools.py` both"),
        (["../tools.py", "tools/tools.py"], "`../tools.py` and the include `tools/tools.py` both"),
    ],
)
def test_a_clash_of_paths_names_both(folder: Path, includes: list[str], message: str) -> None:
    (folder / "tools.py").touch()
    (folder / "tools" / "tools.py").mkdir(parents=True)
    (folder / "tools" / "tools.py" / "a").touch()
    with pytest.raises(InvalidSpec) as caught:
        job_files.find(component(*includes, code="src"), folder)
    assert caught.value.message.startswith(message)
    assert caught.value.at == ("additional_includes", len(includes) - 1)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "artifact", "name": "x"}, "the include `artifact` is not a path"),
        ("azureml:x:1", "the include `azureml:x:1` is not a path"),
        ("../common.zip", "means a folder to be zipped"),
        ("../none.zip", "does not exist"),
        (7, "the include `7` is not a path"),
        ("/", "has no name"),
    ],
)
def test_what_can_not_be_included(folder: Path, entry: Any, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message) as caught:
        job_files.find(component(entry, code="src"), folder)
    assert caught.value.at == AT and caught.value.hint


@pytest.mark.parametrize("written", ["../common", {"a": "b"}])
def test_includes_are_a_list(folder: Path, written: Any) -> None:
    with pytest.raises(InvalidSpec, match="not a list"):
        job_files.find({"command": "ls", "additional_includes": written}, folder)


def test_nothing_can_be_put_beside_code_that_is_elsewhere(folder: Path) -> None:
    with pytest.raises(InvalidSpec, match="`snapshot:1` is not on this machine"):
        job_files.find(component("../common", code="snapshot:1"), folder)


def test_the_limit_is_for_code_and_includes_together(folder: Path) -> None:
    job_files.find(component("../tools.py", code="src"), folder, Limits(files=2))
    with pytest.raises(LimitExceeded):
        job_files.find(component("../tools.py", code="src"), folder, Limits(files=1))
