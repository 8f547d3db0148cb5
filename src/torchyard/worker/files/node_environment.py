"""The job's environment, on a node that may not see the server's disk.

Owns: using the server's folder where it is the same one, else fetching of its files and its Python
what no other environment of the node has, putting in the paths that they have here.
Leaves: where they are kept, and for how long, to node_cache.py; what is sent to the server's
environments/build/transport.py.
Always: each file is checked by its sha256; nothing is written outside of the folder, also when the
list is a hostile one; after a cut connection, or when a worker was killed, the next goes on where
it ended.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchyard.shared import disk, index_sets
from torchyard.shared.connection import Connection, Refused
from torchyard.shared.environment_mark import mark_of
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.retry_delays import retry
from torchyard.shared.sizes import size_text
from torchyard.worker.files import node_cache
from torchyard.worker.files.blobs import relative_path
from torchyard.worker.files.fetched_files import FetchedFiles, FileEntry
from torchyard.worker.files.node_cache import NodeCache

_CODE = "environment_failed"
_LIST = "list"
_TREE = "tree"
_CHECK = "import ctypes, hashlib, ssl, zlib"
_CHECK_S = 60.0
_BESIDE = b"$ORIGIN/../lib"
_HEAD_BYTES = 512
_CHANGED = "environment_changed"
# Of what names the files that are asked for: proxies refuse long addresses.
_MOST_CHARACTERS = 4000


@dataclass(frozen=True)
class FileList:
    """What the server says of a folder, `content` as it was sent; `sha256` names the list."""

    content: bytes
    body: Mapping[str, Any]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size_bytes(self) -> int:
        return int(self.body["size_bytes"])


def bring(
    plan: LaunchPlan,
    link: Connection,
    cache: NodeCache,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
    in_place: bool = True,
) -> LaunchPlan:
    """The plan with the environment's folder on this node.

    Args:
        in_place: whether the server's folder is used where the node sees it.
        say: tells people, before something that may take minutes.

    Raises:
        Failure: it can't be had here, and why.
    """
    if plan.image is not None and not os.path.isdir(plan.image.rootfs):
        raise Failure(
            _CODE,
            f"the environment is an image, and this node does not see `{plan.image.rootfs}`",
            "share the server's environments with the nodes, or use an environment of packages",
        )
    if not plan.environment or plan.image is not None:
        return plan
    shared = Path(plan.environment)
    if in_place and plan.environment_mark and mark_of(shared) == plan.environment_mark:
        return plan
    key = f"{plan.environment_hash or shared.name}-{plan.environment_mark[:16]}"
    folder = _fetched(key, _Fetching(link, cache, stopped, say)) / _TREE
    if _keeps_path(folder):
        _put_link(shared, folder)
        folder = shared
    return replace(plan, environment=str(folder))


def _fetched(key: str, fetching: _Fetching, more_lists: int = 5) -> Path:
    try:
        return fetching.environment(key)
    except Refused as refusal:
        error = refusal.body.get("error") or {}
        if error.get("code") == _CHANGED and more_lists:
            fetching.forget_lists()
            return _fetched(key, fetching, more_lists - 1)
        raise Failure(
            _CODE,
            f"the environment could not be fetched: {error.get('message') or refusal.status}",
            str(error.get("hint") or "submit the job again"),
        ) from refusal


def _keeps_path(folder: Path) -> bool:
    """Whether its files have the path that it has on the server."""
    return (folder / "conda-meta").is_dir()


class _Fetching:
    def __init__(
        self,
        link: Connection,
        cache: NodeCache,
        stopped: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self._link = link
        self._cache = cache
        self._stopped = stopped
        self._say = say
        self._lists: dict[str, FileList] = {}

    def environment(self, key: str) -> Path:
        return self._cache.tree(
            node_cache.ENVIRONMENTS,
            key,
            lambda: self._list("environment").size_bytes,
            self._make_environment,
            self._stopped,
        )

    def forget_lists(self) -> None:
        """The files have changed since the server listed them."""
        self._lists.clear()

    def _make_environment(self, draft: Path) -> None:
        files = self._list("environment")
        self._fetch("environment", files, draft)
        python = files.body.get("python") or {}
        program = self._python(python) if python else None
        _finish(draft / _TREE, files.body, program, self._final(draft))

    def _python(self, python: Mapping[str, Any]) -> Path:
        """The program of the environment's Python: at the same place, or fetched."""
        there = Path(str(python["program"]))
        if os.access(there, os.X_OK) and _sha256(there) == python["sha256"]:
            return there
        files = self._list("python")
        name = str(relative_path(str(files.body["program"])))

        def make(draft: Path) -> None:
            self._fetch("python", files, draft)
            _finish(draft / _TREE, files.body, None, self._final(draft))
            _set_library_path(draft / _TREE / name, str(files.body["prefix"]))
            _check_runs(draft / _TREE / name)

        top = self._cache.tree(
            node_cache.PYTHONS, files.sha256, lambda: files.size_bytes, make, self._stopped
        )
        return top / _TREE / name

    @staticmethod
    def _final(draft: Path) -> Path:
        return draft.with_name(draft.name.removeprefix(".draft-")) / _TREE

    def _list(self, part: str) -> FileList:
        if part not in self._lists:
            self._lists[part] = retry(lambda: self._asked(part), self._stopped)
        return self._lists[part]

    def _asked(self, part: str) -> FileList:
        blocks: list[bytes] = []
        self._link.download(f"/environment?part={part}", blocks.append)
        try:
            return _read_list(b"".join(blocks))
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise OSError(f"the list of the environment's files is damaged: {error}") from error

    def _fetch(self, part: str, files: FileList, draft: Path) -> None:
        """All files of the list, below `draft`; what is there already is not fetched again."""
        noted = draft / _LIST
        if not noted.exists() or noted.read_bytes() != files.content:
            node_cache.remove_tree(draft)
            draft.mkdir(mode=0o700)
            noted.write_bytes(files.content)
        tree = draft / _TREE
        tree.mkdir(mode=0o700, exist_ok=True)
        for path, _ in files.body["folders"]:
            (tree / relative_path(str(path))).mkdir(mode=0o700, parents=True, exist_ok=True)
        entries = [
            FileEntry(str(relative_path(str(path))), int(mode), int(size), int(mtime), str(sha256))
            for path, mode, size, mtime, sha256 in files.body["files"]
        ]
        fetched = FetchedFiles(tree, entries)

        def once() -> None:
            offset = fetched.begin()
            if offset < fetched.size_bytes:
                path = f"/environment/files?part={part}&of={files.sha256}&offset={offset}"
                self._link.download(f"{path}&only={only}" if only else path, fetched.write)
            fetched.end()

        try:
            missing = fetched.copy(_sources(draft.parent, {entry.sha256 for entry in entries}))
            only = "" if len(missing) == len(entries) else index_sets.encode(missing, len(entries))
            if len(only) > _MOST_CHARACTERS:
                fetched, only = FetchedFiles(tree, entries), ""
            self._tell(part, files.size_bytes, fetched.size_bytes)
            retry(once, self._stopped)
        except OSError as error:
            if disk.is_to_blame(error):
                # The next one needs the space, and this one does not go on.
                fetched.close()
                node_cache.remove_tree(draft)
            raise
        finally:
            fetched.close()

    def _tell(self, part: str, size_bytes: int, missing_bytes: int) -> None:
        if part != "environment" or not missing_bytes:
            return
        here = f"; {size_text(size_bytes - missing_bytes)} are on this node already"
        self._say(
            f"fetching the environment from the server, {size_text(missing_bytes)}"
            f"{here if missing_bytes < size_bytes else ''}"
        )


def _read_list(content: bytes) -> FileList:
    return FileList(content, json.loads(gzip.decompress(content)))


def _sources(folder: Path, sums: Collection[str]) -> dict[str, str]:
    """Where files of these sha256 are in the folders that were fetched before.

    They may have been changed or removed since; whoever copies them finds out.
    """
    sources: dict[str, str] = {}
    for top in folder.iterdir():
        if top.name.startswith("."):
            continue
        try:
            body = _read_list((top / _LIST).read_bytes()).body
            for path, _, _, _, sha256 in body["files"]:
                if sha256 in sums:
                    sources[sha256] = str(top / _TREE / relative_path(str(path)))
        except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error, Failure):
            continue  # such as one that an older version fetched
    return sources


def _finish(tree: Path, body: Mapping[str, Any], program: Path | None, final: Path) -> None:
    """Links, and the paths that files have here; then the modes.

    Args:
        program: what `bin/python` is, where the tree has no Python of its own.
        final: where `tree` will be.
    """
    for path, target in body["links"]:
        _make_link(tree, str(relative_path(str(path))), str(target), program)
    if program is not None:
        _set_home(tree / "pyvenv.cfg", program.parent)
    server_path = str(body.get("path") or "")
    if server_path and not body.get("keeps_path"):
        _set_interpreters(tree / "bin", server_path, str(final))
    for path, mode in sorted(body["folders"], reverse=True):
        os.chmod(tree / relative_path(str(path)), int(mode) & 0o777)


def _make_link(tree: Path, path: str, target: str, program: Path | None) -> None:
    link = tree / path
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.isabs(target):
        is_python = link.parent == tree / "bin" and link.name.startswith("python")
        if program is None or not is_python:
            raise _unsafe(path)
        target = str(program)
    else:
        led_to = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if led_to == ".." or led_to.startswith("../"):
            raise _unsafe(path)
    if link.is_symlink():
        link.unlink()
    try:
        link.symlink_to(target)
    except FileExistsError as error:
        raise _unsafe(path) from error


def _unsafe(path: str) -> Failure:
    return Failure(
        _CODE,
        f"`{path}` in the environment leads out of its folder",
        "build the environment without it: links to other folders of the server can't be carried",
    )


def _set_home(file: Path, folder: Path) -> None:
    """The folder of the Python that the environment runs."""
    lines = file.read_text(encoding="utf-8").splitlines()
    changed = [
        f"home = {folder}" if line.split("=")[0].strip() == "home" else line for line in lines
    ]
    _rewrite(file, "\n".join(changed).encode() + b"\n")


def _set_interpreters(folder: Path, server_path: str, path: str) -> None:
    """In the first lines of scripts; what uv installs has no path there."""
    old, new = server_path.encode(), path.encode()
    for file in folder.iterdir():
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        head = content[:_HEAD_BYTES]
        if head.startswith(b"#!") and old in head:
            _rewrite(file, head.replace(old, new) + content[_HEAD_BYTES:])


def _set_library_path(program: Path, prefix: str) -> None:
    """Let a Python that has its library in a file of its own find it beside itself.

    Its path is written into the program; without this, another library of the same name could be
    taken for it, or none be found. The new one is shorter, and what is left of the old is cut off.

    Source: ld.so(8), `$ORIGIN`; elf(5), DT_RUNPATH is a text of the string table.
    """
    content = program.read_bytes()
    old = f"{prefix}/lib".encode() + b"\0"
    if not content.startswith(b"\x7fELF") or old not in content or len(old) <= len(_BESIDE):
        return
    _rewrite(program, content.replace(old, _BESIDE.ljust(len(old), b"\0")))


def _rewrite(file: Path, content: bytes) -> None:
    mode = file.stat().st_mode & 0o777
    os.chmod(file, 0o600)
    file.write_bytes(content)
    os.chmod(file, mode)


def _check_runs(program: Path) -> None:
    outcome = subprocess.run(
        [program, "-I", "-c", _CHECK], capture_output=True, text=True, timeout=_CHECK_S
    )
    if outcome.returncode:
        reason = (outcome.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise Failure(
            _CODE,
            f"the environment's Python does not run on this node: {reason[:300]}",
            "install that library there, or let torchyard download the environment's Python: name "
            "a version that the server's machine does not have",
        )


def _put_link(path: Path, folder: Path) -> None:
    """Make the server's path lead to the folder; packages of conda have it in their files."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.symlink_to(folder)
    except OSError as error:
        raise Failure(
            _CODE,
            f"the environment has packages of conda, which must be at `{path}`, and that path "
            f"can't be made on this node: {error.strerror}",
            "make the folder above it writable for the job's user, share the server's "
            "environments with the nodes, or use packages of PyPI only",
        ) from error


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        for block in iter(lambda: opened.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
