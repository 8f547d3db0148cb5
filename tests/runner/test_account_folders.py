"""A datastore of `type: local`, opened as the Unix account that its owner names."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.files_contract import FilesContract
from runner.runner_site import RunnerSite, runner_site
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Forbidden, InvalidInput, InvalidSpec, NotFound, Unreachable
from torchyard.base.files import reading
from torchyard.data import actions, datastores
from torchyard.data.account_folders import AccountFolder
from torchyard.data.datastores import NOT_LISTED, Datastores
from torchyard.data.fetching import Fetcher
from torchyard.data.folders import LINK_REFUSED, FolderFiles
from torchyard.executors.runner_client import RunnerRefused
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people, rights
from torchyard.workspaces.types import Role

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]

WORKSPACE = "default"


@pytest.fixture(scope="module")
def site() -> Iterator[RunnerSite]:
    with runner_site() as site:
        site.add_users("anna", "reader")
        names = {"anna": site.user("anna")}
        site.configure(accounts=names, folder_accounts={site.user("reader"): ["anna"]})
        site.stop()
        site.start()
        yield site


@pytest.fixture
def folder(site: RunnerSite, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of anna's, closed to all others, also to the server's user."""
    made = site.folder / "people" / request.node.name.partition("[")[0]
    made.mkdir(parents=True)
    (made / "a.txt").write_text("of anna\n")
    for path in (made / "a.txt", made):
        path.chmod(0o600 if path.is_file() else 0o700)
        shutil.chown(path, site.user("anna"), site.user("anna"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def stores(site: RunnerSite, tmp_path: Path) -> Datastores:
    (tmp_path / "listed").mkdir()
    return Datastores(tmp_path / "home" / "datastores", (), site.client, [tmp_path / "listed"])


@pytest.fixture
def db(db: Database, clock: FakeClock) -> Database:
    """With anna, who may run jobs in every workspace, and berta, who may in this one."""
    if not workspaces.list_all(db):
        workspaces.create(db, clock, {"name": WORKSPACE})
    people.create(db, clock, "anna", Role.CONTRIBUTOR, "", "owner")
    people.create(db, clock, "berta", Role.DATA_SCIENTIST, WORKSPACE, "owner")
    return db


def _anybody() -> None:
    pass


def _files(site: RunnerSite, folder: Path, account: str = "anna") -> FolderFiles:
    return FolderFiles(AccountFolder(site.client, "anna", site.user(account), folder, _anybody))


class TestFolderOfAnAccount(FilesContract):
    @pytest.fixture
    def store(self, site: RunnerSite, folder: Path) -> FolderFiles:
        (folder / "a.txt").unlink()
        return _files(site, folder / "new")


def test_files_are_the_accounts(site: RunnerSite, folder: Path) -> None:
    files = _files(site, folder)
    with files.writing("deep/er/new.txt") as writing:
        writing.write(b"by the server")
    made = folder / "deep" / "er" / "new.txt"
    for path in (made, made.parent):
        assert path.stat().st_uid == site.uid("anna")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    with reading(files.open("a.txt")) as opened:
        assert opened.read() == b"of anna\n"
    assert [entry.path for entry in files.walk("")] == ["a.txt", "deep/er/new.txt"]


def test_what_the_account_may_not_read_is_not_read(site: RunnerSite, folder: Path) -> None:
    token = site.folder / "token"
    token.write_text("the server's")
    token.chmod(0o600)
    shutil.chown(token, site.user("server"), site.user("server"))
    (folder / "link").symlink_to(token)
    (folder / "up").symlink_to(site.folder)
    files = _files(site, folder)
    for path in ("link", "up/token"):
        with pytest.raises(InvalidInput) as caught:
            files.open(path)
        assert caught.value.code == LINK_REFUSED
    with pytest.raises(InvalidInput):
        files.entry("../../token")
    # Another account, which anna may use, finds a folder that is closed to it.
    with pytest.raises(RunnerRefused) as refused:
        _files(site, folder, "reader").entry("a.txt")
    assert refused.value.code == "folder_closed"
    # Its root, too, is what the account finds there: as root or as the server it would be open.
    with pytest.raises(RunnerRefused):
        _files(site, site.state).entry("accounts.json")


@pytest.mark.parametrize("account", ["other", "server", "build", "job2", "root"])
def test_only_accounts_that_a_person_may_use(site: RunnerSite, folder: Path, account: str) -> None:
    name = "root" if account == "root" else site.user(account)
    with pytest.raises(RunnerRefused) as refused:
        FolderFiles(AccountFolder(site.client, "anna", name, folder, _anybody)).entry("a.txt")
    assert refused.value.code in ("account_not_yours", "account_refused")
    # And nobody else may use those that anna may.
    for theirs in ("anna", "reader"):
        with pytest.raises(RunnerRefused) as refused:
            AccountFolder(site.client, "berta", site.user(theirs), folder, _anybody).real()
        assert refused.value.code == "account_not_yours"


def test_a_datastore_names_an_account_or_a_listed_folder(
    site: RunnerSite, folder: Path, stores: Datastores, db: Database, clock: FakeClock
) -> None:
    def put(path: Path, **more: str) -> None:
        document = {"name": "nas", "type": "local", "path": str(path), **more}
        datastores.put(db, clock, stores, WORKSPACE, document, "anna")

    for path, at, more in (
        (folder, "path", {}),
        (Path("/usr"), "path", {}),
        (folder, "account", {"account": site.user("other")}),
        (folder / "none", "path", {"account": site.user("anna")}),
        (folder / "a.txt", "path", {"account": site.user("anna")}),
        (site.state, "path", {"account": site.user("anna")}),
    ):
        with pytest.raises(InvalidSpec) as caught:
            put(path, **more)
        assert tuple(caught.value.at) == (at,), caught.value
    put(folder, account=site.user("anna"))
    location = actions.locate(db, stores, WORKSPACE, "azureml://datastores/nas/paths/a.txt")
    assert b"".join(location.files.read("a.txt")) == b"of anna\n"
    shown = datastores.get(db, stores, WORKSPACE, "nas")
    assert shown.document["account"] == site.user("anna")


def test_a_folder_that_is_no_longer_listed_is_no_longer_read(
    site: RunnerSite, tmp_path: Path, stores: Datastores, db: Database, clock: FakeClock
) -> None:
    listed = tmp_path / "listed"
    (listed / "a").write_text("a")
    document = {"name": "nas", "type": "local", "path": str(listed)}
    datastore = datastores.put(db, clock, stores, WORKSPACE, document, "anna")
    assert datastores.open_files(db, stores, datastore).entry("a") is not None
    fewer = Datastores(tmp_path / "home" / "datastores", (), site.client, [])
    with pytest.raises(InvalidInput) as caught:
        datastores.open_files(db, fewer, datastore)
    assert caught.value.code == NOT_LISTED
    # What was listed may become a link to elsewhere.
    shutil.rmtree(listed)
    listed.symlink_to("/usr")
    with pytest.raises(InvalidInput) as caught:
        datastores.open_files(db, stores, datastore)
    assert caught.value.code == NOT_LISTED


def test_an_account_needs_a_runner(folder: Path, site: RunnerSite, tmp_path: Path, db: Database,
                                   clock: FakeClock) -> None:  # fmt: skip
    plain = Datastores(tmp_path / "home" / "datastores")
    document = {"name": "x", "type": "local", "path": str(folder), "account": site.user("anna")}
    with pytest.raises(InvalidSpec) as caught:
        datastores.put(db, clock, plain, WORKSPACE, document, "anna")
    assert tuple(caught.value.at) == ("account",)


def test_a_key_file_is_one_that_the_owner_listed(
    stores: Datastores, db: Database, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("key")
    document = {
        "name": "far", "type": "sftp", "host": "h", "private_key_file": str(tmp_path / "key"),
    }  # fmt: skip
    with pytest.raises(InvalidSpec) as caught:
        datastores.put(db, clock, stores, WORKSPACE, document, "anna")
    assert (tuple(caught.value.at), caught.value.code) == (("private_key_file",), NOT_LISTED)


def test_the_owners_jobs_use_it_in_place_and_others_get_a_copy(
    site: RunnerSite, folder: Path, stores: Datastores, db: Database, clock: FakeClock,
    tmp_path: Path,
) -> None:  # fmt: skip
    document = {
        "name": "nas", "type": "local", "path": str(folder), "account": site.user("anna"),
    }  # fmt: skip
    datastores.put(db, clock, stores, WORKSPACE, document, "anna")
    fetcher = Fetcher(tmp_path / "node", db, stores, is_separate=True)
    uri = "azureml://datastores/nas/paths/"
    own = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now(), person="anna")
    assert own.path == folder
    assert fetcher.ready(WORKSPACE, "uri_folder", uri, clock.now(), "berta") is None
    other = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now(), person="berta")
    assert other.path.is_relative_to(tmp_path / "node")
    assert (other.path / "a.txt").read_text() == "of anna\n"
    with pytest.raises(NotFound):
        fetcher.fetch(WORKSPACE, "uri_folder", f"{uri}none", clock.now(), person="berta")


def test_nothing_is_opened_for_who_may_run_nothing_any_more(
    site: RunnerSite, folder: Path, stores: Datastores, db: Database, clock: FakeClock,
    tmp_path: Path,
) -> None:  # fmt: skip
    document = {
        "name": "nas", "type": "local", "path": str(folder), "account": site.user("anna"),
    }  # fmt: skip
    made = datastores.put(db, clock, stores, WORKSPACE, document, "anna")
    opened = datastores.open_files(db, stores, made)
    fetcher = Fetcher(tmp_path / "node", db, stores, is_separate=True)
    uri = "azureml://datastores/nas/paths/a.txt"
    copied = fetcher.fetch(WORKSPACE, "uri_file", uri, clock.now(), person="berta")
    assert fetcher.ready(WORKSPACE, "uri_file", uri, clock.now(), "berta") is not None

    def write() -> None:
        with opened.writing("new.txt") as writing:
            writing.write(b"x")

    uses: list[Callable[[], object]] = [
        lambda: opened.entry("a.txt"),
        lambda: list(opened.walk("")),
        lambda: list(opened.read("a.txt")),
        write,
        lambda: opened.delete("a.txt"),
        lambda: datastores.open_files(db, stores, made),
        lambda: actions.locate(db, stores, WORKSPACE, uri),
        lambda: fetcher.fetch(WORKSPACE, "uri_file", uri, clock.now(), person="berta"),
        # What was copied before is theirs no more, either.
        lambda: fetcher.ready(WORKSPACE, "uri_file", uri, clock.now(), "berta"),
    ]
    losses: list[Callable[[], object]] = [
        lambda: people.set_role(db, clock, "anna", "", Role.READER, "owner"),
        lambda: people.remove(db, clock, "anna"),
    ]
    for lose in losses:
        lose()
        for use in uses:
            with pytest.raises(Forbidden) as caught:
                use()
            assert caught.value.code == rights.CODE
    assert {path.name for path in folder.iterdir()} == {"a.txt"}
    assert copied.path.read_text() == "of anna\n"
    # A contributor makes it again, with an account that they may use, or anna is back.
    people.set_role(db, clock, "berta", WORKSPACE, Role.CONTRIBUTOR, "owner")
    with pytest.raises(InvalidSpec) as refused:
        datastores.put(db, clock, stores, WORKSPACE, document, "berta")
    assert tuple(refused.value.at) == ("account",)
    people.create(db, clock, "anna", Role.DATA_SCIENTIST, WORKSPACE, "owner")
    assert opened.entry("a.txt") is not None


def test_an_account_that_is_somebody_elses_now_is_not_opened(
    site: RunnerSite, folder: Path, stores: Datastores, db: Database, clock: FakeClock
) -> None:
    document = {
        "name": "nas", "type": "local", "path": str(folder), "account": site.user("anna"),
    }  # fmt: skip
    made = datastores.put(db, clock, stores, WORKSPACE, document, "anna")
    opened = datastores.open_files(db, stores, made)
    before = {"accounts": {"anna": site.user("anna")},
              "folder_accounts": {site.user("reader"): ["anna"]}}  # fmt: skip
    site.configure(
        accounts={"anna": site.user("job1"), "berta": site.user("anna")}, folder_accounts={}
    )
    try:
        site.stop()
        site.start()
        with pytest.raises(RunnerRefused) as caught:
            opened.entry("a.txt")
        assert caught.value.code == "account_not_yours" and "`anna`" in caught.value.hint
    finally:
        site.configure(**before)
        site.stop()
        site.start()
    assert opened.entry("a.txt") is not None


def test_more_names_than_one_message_holds(site: RunnerSite, folder: Path) -> None:
    for number in range(4_500):
        (folder / f"{number:05}.txt").touch()
    names = [entry.path for entry in _files(site, folder).walk("")]
    assert names == [*(f"{number:05}.txt" for number in range(4_500)), "a.txt"]


def test_a_session_that_the_account_kills_is_an_error_and_hangs_nobody(
    site: RunnerSite, folder: Path
) -> None:
    account_folder = AccountFolder(site.client, "anna", site.user("anna"), folder, _anybody)
    with account_folder.opened() as opened:
        assert opened.look("a.txt") is not None
        assert site.run_as("anna", ["/bin/kill", "-9", "--", "-1"]).returncode in (0, -9)
        with pytest.raises(Unreachable) as caught:
            opened.look("a.txt")
        assert caught.value.code == "account_interfered"
    assert _files(site, folder).entry("a.txt") is not None
    assert site.client.call("hello")["server_user"] == site.user("server")
