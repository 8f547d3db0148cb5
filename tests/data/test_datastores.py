"""A local datastore never shows what the server or the system keeps to itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from data.conftest import WORKSPACE
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.base.home.secrets_keys import KeyRing
from torchyard.data import actions, datastores
from torchyard.data.datastores import Datastores

ONE_DATABASE = True


@pytest.fixture
def stores(tmp_path: Path) -> Datastores:
    for name in ("server/home/datastores", "node/scratch", "keys", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "keys" / "key.pem").write_text("private")
    private = (tmp_path / "node", tmp_path / "keys" / "key.pem")
    return Datastores(tmp_path / "server/home/datastores", private)


def _put(db: Database, clock: FakeClock, stores: Datastores, path: Path | str, **more: str) -> None:
    document = {"name": "mine", "type": "local", "path": str(path), **more}
    datastores.put(db, clock, stores, WORKSPACE, document, "me")


@pytest.mark.parametrize(
    "path",
    [
        *("server/home", "server/home/datastores", "server", ".", "node", "node/scratch", "keys"),
        *("data/../server/home", "data/../node/scratch/..", "link", "link/home", "chain"),
    ],
)
def test_folders_of_the_server_are_refused(
    path: str, tmp_path: Path, db: Database, clock: FakeClock, stores: Datastores
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "server")
    (tmp_path / "chain").symlink_to("link/home")
    with pytest.raises(InvalidSpec, match="holds files of the server itself") as refusal:
        _put(db, clock, stores, f"{tmp_path}/{path}")
    assert refusal.value.code == "server_files"


@pytest.mark.parametrize("path", ["/", "/proc", "/proc/self/root/etc", "/sys/kernel", "/dev/shm"])
def test_folders_of_the_system_are_refused(
    path: str, db: Database, clock: FakeClock, stores: Datastores
) -> None:
    with pytest.raises(InvalidSpec, match="or of the system"):
        _put(db, clock, stores, path)


def test_a_folder_that_later_leads_to_the_server_is_refused_at_use(
    tmp_path: Path, db: Database, clock: FakeClock, stores: Datastores
) -> None:
    folder = tmp_path / "data" / "sets"
    folder.mkdir()
    (folder / "token").write_text("just data")
    _put(db, clock, stores, folder)
    uri = "azureml://datastores/mine/paths/token"
    location = actions.locate(db, stores, WORKSPACE, uri)
    assert b"".join(location.files.read(location.path)) == b"just data"

    folder.rename(tmp_path / "aside")
    folder.symlink_to(tmp_path / "server" / "home")
    (tmp_path / "server" / "home" / "token").write_text("secret")
    with pytest.raises(InvalidInput, match="datastore `mine` can't be used") as refusal:
        actions.locate(db, stores, WORKSPACE, uri)
    assert refusal.value.code == "server_files"


def test_a_home_that_is_mounted_twice_is_recognized(
    tmp_path: Path, db: Database, clock: FakeClock, stores: Datastores
) -> None:
    target = tmp_path / "data"
    source = tmp_path / "server"
    mount = subprocess.run(["mount", "--bind", source, target], capture_output=True)
    if mount.returncode != 0:
        pytest.skip("mounting needs root")
    try:
        for path in (target, target / "home"):
            with pytest.raises(InvalidSpec, match="server itself"):
                _put(db, clock, stores, path)
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_a_key_of_the_server_opens_no_datastore(
    tmp_path: Path, db: Database, clock: FakeClock, stores: Datastores
) -> None:
    document = {"name": "far", "type": "sftp", "host": "h", "path": "/"}
    of_secrets = KeyRing(tmp_path / "server" / "home").ensure().current.file
    assert Path(of_secrets).parent == tmp_path / "server"
    for key in (str(tmp_path / "keys" / "key.pem"), of_secrets):
        document["private_key_file"] = key
        with pytest.raises(InvalidSpec, match="server itself") as refusal:
            datastores.put(db, clock, stores, WORKSPACE, document, "me")
        assert refusal.value.code == "server_files"


def test_what_is_written_is_as_readable_as_the_datastores_folder(
    tmp_path: Path, db: Database, clock: FakeClock, stores: Datastores
) -> None:
    folder = tmp_path / "data"
    modes = []
    for mode in (0o755, 0o750, 0o700):
        folder.chmod(mode)
        _put(db, clock, stores, folder)
        uri = f"azureml://datastores/mine/paths/new{mode:o}/deep/file"
        location = actions.locate(db, stores, WORKSPACE, uri)
        with location.files.writing(location.path) as writing:
            writing.write(b"x")
        made = folder / f"new{mode:o}"
        paths = (made, made / "deep", made / "deep" / "file")
        modes.append([path.stat().st_mode & 0o777 for path in paths])
    assert modes == [[0o755, 0o755, 0o644], [0o750, 0o750, 0o640], [0o700, 0o700, 0o600]]
