"""What git says of a code folder, and code behind git URLs; git is the real one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.client.snapshots import git, job_files

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def run(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """main: a/x.py says 1; branch `next`: it says 2."""
    here = tmp_path / "repository"
    (here / "a").mkdir(parents=True)
    (here / "a/x.py").write_text("1")
    (here / "link").symlink_to("/etc")
    run(here, "init", "-q", "-b", "main")
    run(here, "add", "-A")
    run(here, "commit", "-q", "-m", "one")
    run(here, "checkout", "-q", "-b", "next")
    (here / "a/x.py").write_text("2")
    run(here, "commit", "-q", "-am", "two")
    run(here, "checkout", "-q", "main")
    return here


def test_a_work_tree(repository: Path, tmp_path: Path) -> None:
    commit = run(repository, "rev-parse", "HEAD").strip()
    url = "https://ann:token@example.org/team/repo.git"
    run(repository, "remote", "add", "origin", url)
    expected = {
        "azureml.git.repository_uri": "https://example.org/team/repo.git",
        "mlflow.source.git.repoURL": "https://example.org/team/repo.git",
        "azureml.git.branch": "main",
        "mlflow.source.git.branch": "main",
        "azureml.git.commit": commit,
        "mlflow.source.git.commit": commit,
        "azureml.git.dirty": "False",
    }
    assert git.properties(repository / "a") == expected
    (repository / "new.txt").touch()
    assert git.properties(repository)["azureml.git.dirty"] == "True"
    # Only what the job takes along counts.
    assert git.properties(repository / "a")["azureml.git.dirty"] == "False"
    (repository / "a/x.py").write_text("3")
    assert git.properties(repository / "a")["azureml.git.dirty"] == "True"
    run(repository, "checkout", "-q", "-f", "--detach")
    assert "azureml.git.branch" not in git.properties(repository)


def test_without_git(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git.properties(tmp_path) == {}
    (tmp_path / "empty").mkdir()
    run(tmp_path / "empty", "init", "-q", "-b", "main")
    assert git.properties(tmp_path / "empty")["azureml.git.branch"] == "main"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git.properties(repository) == {}
    with pytest.raises(InvalidSpec, match="needs git"), git.cloned(f"git+file://{repository}"):
        pass


@pytest.mark.parametrize(
    ("text", "is_url"),
    [
        ("https://github.com/a/b.git", True),
        ("https://github.com/a/b.git#main:src", True),
        ("git@github.com:a/b.git", True),
        ("git+file:///a/b", True),
        ("git+https://e.org/x#main", True),
        ("ssh://git@e.org/x", True),
        ("https://e.org/data.zip", False),
        ("./src", False),
        ("file:///a/b", False),
        ("azureml:code:1", False),
        ("azureml://a/b.git", False),
        ("a@b", False),
    ],
)
def test_what_is_a_git_url(text: str, is_url: bool) -> None:
    assert git.is_url(text) == is_url


@pytest.mark.parametrize(
    ("url", "recorded"),
    [
        ("https://ann:token@e.org/x.git", "https://e.org/x.git"),
        ("https://token@e.org/x.git?key=1", "https://e.org/x.git"),
        ("git@e.org:x.git", "git@e.org:x.git"),
        ("ssh://git:pw@e.org:22/x", "ssh://git@e.org:22/x"),
    ],
)
def test_no_password_is_recorded(url: str, recorded: str) -> None:
    assert git.without_password(url) == recorded


@pytest.mark.parametrize("revision", ["next", "commit"])
def test_a_clone(repository: Path, revision: str) -> None:
    commit = run(repository, "rev-parse", "next").strip()
    name = commit if revision == "commit" else revision
    with git.cloned(f"git+file://{repository}#{name}:a") as checkout:
        assert (checkout.folder / "x.py").read_text() == "2"
        assert checkout.properties["azureml.git.commit"] == commit
        assert checkout.properties.get("azureml.git.branch") == (
            None if revision == "commit" else "next"
        )
        assert checkout.properties["azureml.git.repository_uri"] == f"file://{repository}"
        top = checkout.folder.parent
    assert not top.exists()


@pytest.mark.parametrize(
    ("fragment", "error"),
    [
        ("#nope", "could not be cloned"),
        ("#main:nope", "has no folder `nope`"),
        ("#main:../..", "has no folder"),
        ("#main:link", "has no folder"),
        ("#--upload-pack=id", "is not a git URL"),
    ],
)
def test_what_can_not_be_cloned(
    repository: Path, fragment: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InvalidSpec, match=error) as caught:
        with git.cloned(f"git+file://{repository}{fragment}"):
            pass
    assert caught.value.hint
    assert list(tmp_path.glob("torchyard-code-*")) == []


def test_a_jobs_code_and_properties(repository: Path, tmp_path: Path) -> None:
    document = {"command": "x", "code": f"git+file://{repository}:a", "properties": {"mine": "1"}}
    document["code"] = f"git+file://{repository}#next:a"
    files = job_files.find(document, tmp_path)
    assert files.document["code"] == f"local:git+file://{repository}" and files.clones
    with files.with_code() as ready:
        (path,) = ready.paths
        assert [file[0] for file in path.entries] == ["x.py"]
        posted = ready.with_snapshots(lambda path: path.take(tmp_path / "index").root.name)
        assert posted["code"] == "snapshot:a" and posted["properties"]["mine"] == "1"
        assert posted["properties"]["azureml.git.branch"] == "next"
    assert not (tmp_path / "index").exists()
    local = job_files.find({"command": "x", "code": str(repository / "a")}, tmp_path)
    with local.with_code() as ready:
        assert ready.document["properties"]["azureml.git.branch"] == "main"
    properties = {"azureml.git.branch": "said by me"}
    local = job_files.find({"code": str(repository / "a"), "properties": properties}, tmp_path)
    with local.with_code() as ready:
        assert ready.document["properties"]["azureml.git.branch"] == "said by me"


def test_any_number_of_nodes_may_have_code_behind_urls(repository: Path, tmp_path: Path) -> None:
    url = f"git+file://{repository}"
    (tmp_path / "tools.py").write_text("tools")
    includes = {"additional_includes": ["tools.py"]}
    jobs = {
        "a": {"command": "x", "code": f"{url}#next:a"},
        "b": {"command": "x", "code": f"{url}#main:a", **includes},
        "c": {"component": {"command": "x", "code": f"{url}#next:a"}},
    }
    files = job_files.find({"type": "pipeline", "jobs": jobs}, tmp_path)
    assert files.document["jobs"]["c"]["component"]["code"] == f"local:{url}"
    with files.with_code() as ready:
        names = {path.at: [entry[0] for entry in path.entries] for path in ready.paths}
        taken = {path.at[1]: path.take(None) for path in ready.paths}
        texts = {
            name: [Path(each.place).read_text() for each in snapshot.contents()]
            for name, snapshot in taken.items()
        }
    assert names == {
        ("jobs", "a", "code"): ["x.py"],
        ("jobs", "b", "code"): ["tools.py", "x.py"],
        ("jobs", "c", "component", "code"): ["x.py"],
    }
    assert texts == {"a": ["2"], "b": ["tools", "1"], "c": ["2"]}
    assert "properties" not in ready.document  # the pipeline's own folder is no work tree


def test_a_pipeline_has_the_properties_of_its_own_folder(repository: Path) -> None:
    (repository / ".amlignore").write_text("a/\nlink\n")
    node = {"command": "x", "code": "."}
    files = job_files.find({"jobs": {"a": node, "b": node}}, repository)
    with files.with_code() as ready:
        recorded = ready.document["properties"]
    assert recorded["azureml.git.branch"] == "main" and "torchyard.left_out" not in recorded
    assert "properties" not in ready.document["jobs"]["a"]


@pytest.mark.parametrize("url", ["#no-such-branch", "#--upload-pack=id"])
def test_an_error_about_a_url_has_the_place_of_its_node(
    repository: Path, url: str, tmp_path: Path
) -> None:
    jobs = {"a": {"command": "x", "code": f"git+file://{repository}{url}"}}
    with pytest.raises(InvalidSpec) as caught:
        with job_files.find({"jobs": jobs}, tmp_path).with_code():
            pass
    assert caught.value.at == ("jobs", "a", "code")
