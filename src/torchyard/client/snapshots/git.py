"""What git knows of a code folder, and code that lies behind a git URL.

Owns: which properties a job gets, which texts are git URLs, shallow clones.
Leaves: what a snapshot of a clone holds to walk.py.
Always: no password of a URL is recorded; without git, or with one that is too slow, a job gets no
properties and is created all the same; git never asks at the terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from torchyard.base.errors import InvalidSpec

_LOOK_S = 3.0
_CLONE_S = 600.0
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_SCHEMES = ("https", "http", "ssh", "git", "file")
_SCP = re.compile(r"^[\w.-]+@[\w.-]+:(?!//)")
_HINT = "write `https://host/repo.git#branch:folder`, `git@host:repo.git` or `git+file:///repo`"


@dataclass(frozen=True)
class GitUrl:
    """`<url>#<branch>:<folder>`; `revision` and `folder` may be empty."""

    url: str
    revision: str = ""
    folder: str = ""


@dataclass(frozen=True)
class Checkout:
    """A clone on this disk, and the properties of a job made from it."""

    folder: Path
    properties: dict[str, str]


def properties(folder: Path) -> dict[str, str]:
    """What Azure ML's clients record of the git work tree that `folder` lies in; empty for none.

    Source: azure-ai-ml, `azure/ai/ml/_utils/_asset_utils.py` names the same keys.
    """
    if not _in_work_tree(folder):
        return {}
    status = _start(folder, "status", "--porcelain=v2", "--branch", "--", ".")
    remote = _start(folder, "config", "--get-regexp", r"^remote\..*\.url$")
    status_text, remotes = _finish(status), _finish(remote)
    if status_text is None:
        return {}
    lines = status_text.splitlines()
    facts = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit, branch = facts.get("branch.oid", ""), facts.get("branch.head", "")
    dirty = any(not line.startswith("#") for line in lines)
    return _properties(
        _origin(remotes or ""),
        "" if branch.startswith("(") else branch,
        "" if commit.startswith("(") else commit,
        dirty,
    )


def is_url(text: str) -> bool:
    """Whether `code: text` means a repository that has to be cloned."""
    lower = text.lower()
    if lower.startswith("git+") or _SCP.match(text):
        return True
    scheme, separator, _ = lower.partition("://")
    if not separator or scheme not in (*_SCHEMES, "git"):
        return False
    return scheme in ("git", "ssh") or lower.partition("#")[0].rstrip("/").endswith(".git")


def parse(text: str) -> GitUrl:
    """
    Raises:
        InvalidSpec: it is not a URL that git may be given.
    """
    url, _, fragment = text.partition("#")
    revision, _, folder = fragment.partition(":")
    url = re.sub(r"^git\+", "", url, flags=re.I)
    if not _SCP.match(url):
        parts = urlsplit(url)
        if parts.scheme.lower() not in _SCHEMES or not (parts.netloc or parts.path.strip("/")):
            raise InvalidSpec(f"`{_public(text)}` is not a git URL", _HINT)
    if url.startswith("-") or revision.startswith("-"):
        raise InvalidSpec(f"`{_public(text)}` is not a git URL", _HINT)
    return GitUrl(url, revision, folder.strip("/"))


@contextmanager
def cloned(text: str) -> Iterator[Checkout]:
    """The code that `text` names, without history, until the end of the block.

    Raises:
        InvalidSpec: git is missing, or could not fetch it, or the folder is not in it.
    """
    source = parse(text)
    if shutil.which("git") is None:
        raise InvalidSpec(
            f"`{_public(text)}` needs git, which is not on this machine",
            "install git, or clone by hand and name the folder",
        )
    top = Path(tempfile.mkdtemp(prefix="torchyard-code-"))
    try:
        _run(top, text, "init", "--quiet")
        fetch = ("fetch", "--quiet", "--depth", "1", "--no-tags", "--", source.url)
        _run(top, text, *fetch, source.revision or "HEAD")
        _run(top, text, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        commit = _run(top, text, "rev-parse", "HEAD").strip()
        folder = top / source.folder
        inside = os.path.realpath(folder)
        if not os.path.isdir(inside) or not (inside + os.sep).startswith(
            os.path.realpath(top) + os.sep
        ):
            raise InvalidSpec(
                f"`{_public(text)}`: the repository has no folder `{source.folder}`",
                "write the folder behind the branch, `#branch:folder`",
            )
        branch = "" if source.revision in ("HEAD", commit) else source.revision
        yield Checkout(
            Path(inside), _properties(without_password(source.url), branch, commit, False)
        )
    finally:
        shutil.rmtree(top, ignore_errors=True)


def without_password(url: str) -> str:
    """The URL as it may be recorded: `https://user:token@host/x` becomes `https://host/x`."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username if parts.scheme.lower() in ("ssh", "git+ssh") else None
    return (
        f"{parts.scheme}://{user}@{host}{parts.path}"
        if user
        else (f"{parts.scheme}://{host}{parts.path}")
    )


def _properties(url: str, branch: str, commit: str, dirty: bool) -> dict[str, str]:
    properties = {
        "azureml.git.repository_uri": url,
        "mlflow.source.git.repoURL": url,
        "azureml.git.branch": branch,
        "mlflow.source.git.branch": branch,
        "azureml.git.commit": commit,
        "mlflow.source.git.commit": commit,
        "azureml.git.dirty": str(dirty),
    }
    return {key: value for key, value in properties.items() if value}


def _in_work_tree(folder: Path) -> bool:
    real = Path(os.path.realpath(folder))
    return any((parent / ".git").exists() for parent in (real, *real.parents))


def _origin(remotes: str) -> str:
    urls = dict(line.split(" ", 1) for line in remotes.splitlines() if " " in line)
    url = urls.get("remote.origin.url") or next(iter(urls.values()), "")
    return without_password(url)


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str] | None:
    try:
        return subprocess.Popen(
            [*_GIT, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError:
        return None


def _finish(process: subprocess.Popen[str] | None) -> str | None:
    if process is None:
        return None
    with process:
        try:
            out, _ = process.communicate(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return out if process.returncode == 0 else None


def _run(top: Path, text: str, *arguments: str) -> str:
    """Git in the clone. Without a session of its own it would ask for passwords at the terminal."""
    try:
        ran = subprocess.run(
            [*_GIT, "-c", "protocol.ext.allow=never", *arguments],
            cwd=top,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CLONE_S,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidSpec(
            f"`{_public(text)}` could not be cloned in {_CLONE_S:.0f} s",
            "clone it by hand and name the folder",
        ) from error
    if ran.returncode:
        url = parse(text).url
        reason = " ".join(ran.stderr.replace(url, without_password(url)).split())[:500]
        raise InvalidSpec(
            f"`{_public(text)}` could not be cloned: {reason}",
            "try `git ls-remote` with this URL; a private one needs a credential helper or an "
            "ssh key that asks nothing",
        )
    return ran.stdout


def _public(text: str) -> str:
    url, mark, fragment = text.partition("#")
    return without_password(url) + mark + fragment
