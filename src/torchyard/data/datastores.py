"""The datastores of a workspace.

Owns: the two built-in ones, which are folders of the server's home; those that users make; opening
any of them; the paths of outputs, models and uploads, which are Azure ML's.
Leaves: permissions to the routes.
Always: a file is complete or absent; credentials never leave the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from torchyard.base import files
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    InvalidSpec,
    NotFound,
    did_you_mean,
)
from torchyard.base.home import secrets_keys
from torchyard.data import kinds, store, uris
from torchyard.data.account_folders import AccountFolder
from torchyard.data.folders import FolderFiles, ServerFolder
from torchyard.data.remote import RemoteFiles
from torchyard.data.types import Datastore, Files
from torchyard.executors.runner_client import RunnerClient, RunnerRefused
from torchyard.workspaces import ownership, rights

ARTIFACT_STORE = "workspaceartifactstore"
BLOB_STORE = "workspaceblobstore"
BUILT_IN = (BLOB_STORE, ARTIFACT_STORE)
_ALWAYS = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PRIVATE = "server_files"
NOT_LISTED = "folder_not_listed"
# The runner's word for a folder that the account may not open.
_CLOSED = "folder_closed"
# Which kinds name paths of the server's own machine, by key.
_WITH_PATHS = {"path": ("local",), "private_key_file": ("sftp",)}
_CREATE_HINT = "create another one with `yard datastore create`"

UPLOADS = "LocalUpload"
"""The folder of the default datastore that holds what people upload, each below a name of its own.
"""


MODELS = "azureml-models"
"""The folder of the default datastore that holds what registered models were copied to."""


def artifacts_of(job: str) -> str:
    """The folder of a run's artifacts in the artifact store."""
    return f"ExperimentRun/dcid.{job}"


def output_of(job: str, output: str) -> str:
    """The folder of a named output in the default datastore."""
    return f"azureml/{job}/{output}"


def model_folder(name: str, unique: str) -> str:
    """The folder of a registered model in the default datastore."""
    return f"{MODELS}/{name}/{unique}"


def upload_folder(snapshot: str) -> str:
    """The folder of uploaded data in its datastore."""
    return f"{UPLOADS}/{snapshot[:32]}"


DATA_DELETED = "data_deleted"
_DELETABLE = (f"{UPLOADS}/", f"{MODELS}/")
# Kernels and services show memory, devices and credentials there.
_SYSTEM = tuple(Path(path) for path in ("/proc", "/sys", "/dev", "/run/credentials"))
# The server's own configuration, and the runner's.
_CONFIGURATION = Path("/etc/torchyard")


class Datastores:
    """Every workspace's own datastores, below one folder.

    Args:
        folder: of the server's home.
        private: more files and folders that no datastore may show: the node folder, keys.
        runner: opens folders as people's Unix accounts, where their jobs run as those.
        listed: folders that the server's owner lets be used without an account; others are not,
            where there is a runner.
    """

    def __init__(
        self,
        folder: Path,
        private: Sequence[Path] = (),
        runner: RunnerClient | None = None,
        listed: Sequence[Path] = (),
    ) -> None:
        self._folder = folder
        self._private = (folder.parent, _CONFIGURATION, *private)
        self._runner = runner
        # As the owner meant them: what becomes a link later does not move them.
        self._listed = tuple(folder.resolve() for folder in listed)

    @property
    def runner(self) -> RunnerClient | None:
        return self._runner

    def is_listed(self, real: Path) -> bool:
        """Whether the server's own user may open a folder that a person named.

        Args:
            real: its path without links.
        """
        return self._runner is None or any(real.is_relative_to(folder) for folder in self._listed)

    def root(self, workspace: str, store: str) -> Path:
        return self._folder / files.safe_relative(workspace) / store

    def touches(self, folder: Path) -> bool:
        """Whether something of the server or the system is in `folder`, or `folder` in that.

        Links and `..` are followed as they are now, and folders that are mounted twice are found.
        """
        resolved = folder.resolve()
        if any(resolved.is_relative_to(system) for system in _SYSTEM):
            return True
        keys = secrets_keys.files_of(self._folder.parent)
        private = [path.resolve() for path in (*self._private, *keys)]
        if any(resolved.is_relative_to(path) or path.is_relative_to(resolved) for path in private):
            return True
        identities = {_identity(path) for path in private} - {None}
        ancestors = {_identity(path) for path in (resolved, *resolved.parents[:-1])}
        above = {_identity(above) for path in private for above in path.parents[:-1]}
        return bool(identities & ancestors) or _identity(resolved) in above

    def writing(
        self, workspace: str, store: str, path: str
    ) -> AbstractContextManager[files.Writing]:
        """Open `path` for writing; it appears when the block ends without an error."""
        return FolderFiles(self.root(workspace, store)).writing(path)

    def file(self, workspace: str, store: str, path: str) -> Path:
        """
        Raises:
            NotFound: the file does not exist.
        """
        root, clean = self.root(workspace, store), files.safe_relative(path)
        if FolderFiles(root).entry(clean) is None:
            raise NotFound(f"`{path}` does not exist in datastore `{store}`", "check the path")
        return root / clean

    def list(self, workspace: str, store: str, prefix: str) -> Iterator[tuple[str, int]]:
        """(path below `prefix`, size in bytes), sorted by path."""
        for entry in FolderFiles(self.root(workspace, store)).walk(prefix):
            yield entry.path, entry.size_bytes

    def move(self, workspace: str, store: str, path: str, to: str) -> None:
        """Move a file or a folder to a free path; does nothing when it does not exist."""
        root = self.root(workspace, store)
        source = files.inside(root, path)
        if source.exists():
            source.rename(files.inside(root, to))

    def delete(self, workspace: str, store: str, path: str) -> None:
        """Delete a file, or everything below a folder; does nothing when it does not exist."""
        FolderFiles(self.root(workspace, store)).delete(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def refuse_deleted(stores: Datastores, workspace: str, path: str) -> None:
    """Check that what was uploaded, or copied for a model, is there; other paths are not read.

    Raises:
        NotFound: it was deleted.
    """
    uri = uris.datastore(path, workspace)
    if uri is None or uri.store != BLOB_STORE or not uri.path.startswith(_DELETABLE):
        return
    if not FolderFiles(stores.root(workspace, BLOB_STORE)).exists(uri.path.rstrip("/")):
        raise NotFound(
            f"`{path}` was deleted",
            "name other data, or upload it again",
            code=DATA_DELETED,
        )


def put(
    db: Database,
    clock: Clock,
    stores: Datastores,
    workspace: str,
    document: Mapping[str, Any],
    user: str,
) -> Datastore:
    """Create or replace a datastore; one that is replaced stays its owner's.

    Args:
        user: who does, and must be let use the Unix account that the document names.

    Raises:
        InvalidSpec: the document is wrong.
        Conflict: it is built in.
        Forbidden: it is another's.
        InvalidInput: the server lacks the package that its kind needs.
    """
    now = clock.now()
    datastore = kinds.read_document(document, workspace, now)
    if datastore.name in BUILT_IN:
        raise Conflict(
            f"datastore `{datastore.name}` is built in and can't be changed", _CREATE_HINT
        )
    for key in ("path", "private_key_file"):
        if datastore.kind in _WITH_PATHS.get(key, ()) and document.get(key):
            _refuse_private(stores, key, str(document[key]))
    with db.read() as connection:
        _owner_after(connection, datastore, user)
    if datastore.kind == "local":
        datastore = _with_account(db, stores, datastore, user)
    elif document.get("private_key_file"):
        _refuse_unlisted(stores, Path(str(document["private_key_file"])), "private_key_file")
    if not kinds.is_kept_only(datastore):
        open_files(db, stores, datastore)
    with db.write() as connection:
        datastore = replace(datastore, owner=_owner_after(connection, datastore, user))
        store.put_datastore(connection, datastore)
    return datastore


def _owner_after(connection: Connection, datastore: Datastore, user: str) -> str:
    """Whose a datastore is once it is written.

    Raises:
        Forbidden: there is one of its name that is another's.
    """
    there = store.list_datastores(connection, datastore.workspace)
    before = next((each for each in there if each.name == datastore.name), None)
    if before is None:
        return user
    _refuse_foreign(connection, before, user)
    return before.owner or user


def _refuse_foreign(connection: Connection, datastore: Datastore, user: str) -> None:
    """
    Raises:
        Forbidden: it is another's.
    """
    subject = f"datastore `{datastore.name}`"
    ownership.refuse(
        connection, ownership.DATASTORE, datastore.workspace, user, datastore.owner, subject
    )


def _refuse_private(stores: Datastores, key: str, path: str) -> None:
    if stores.touches(Path(path)):
        raise InvalidSpec(
            f"`{path}` holds files of the server itself or of the system",
            "name another place",
            at=[key],
            code=_PRIVATE,
        )


def _with_account(db: Database, stores: Datastores, datastore: Datastore, person: str) -> Datastore:
    """A datastore of `type: local`, with what says as whom its folder is opened.

    Raises:
        InvalidSpec: its folder is none, or may not be used so.
    """
    path, account = Path(str(datastore.document["path"])), datastore.document.get("account")
    if not account:
        if not path.is_dir():
            raise _no_folder(path)
        _refuse_unlisted(stores, path, "path")
        return datastore
    if stores.runner is None:
        raise InvalidSpec(
            "`account` needs a runner, and jobs of this server run as its own user",
            "leave it out",
            at=["account"],
        )
    is_own = stores.runner.call("account", person=person)["account"] == account
    options = {"person": person, "account": str(account), "is_own": is_own}
    datastore = replace(datastore, options=options)
    try:
        real = _account_folder(db, stores, datastore, path).real()
    except FileNotFoundError as error:
        raise _no_folder(path) from error
    except RunnerRefused as error:
        key = "path" if error.code == _CLOSED else "account"
        raise InvalidSpec(error.message, error.hint, at=[key], code=error.code) from error
    _refuse_private(stores, "path", str(real))
    return datastore


def _refuse_unlisted(stores: Datastores, path: Path, key: str) -> None:
    """
    Raises:
        InvalidSpec: the server's own user may not open it for people.
    """
    if stores.is_listed(path.resolve()):
        return
    at_account = "name the Unix account that it is opened as: `account: …`; or "
    raise InvalidSpec(
        f"`{path}` is in no folder that this server opens for people",
        f"{at_account if key == 'path' else ''}ask the server's owner to list its folder with "
        "`yard-server --datastore-folder`",
        at=[key],
        code=NOT_LISTED,
    )


def _no_folder(path: Path) -> InvalidSpec:
    return InvalidSpec(
        f"`{path}` is not a folder on the server's machine", "create it first", at=["path"]
    )


def describe(
    db: Database,
    stores: Datastores,
    workspace: str,
    name: str,
    description: str,
    tags: Mapping[str, str],
    user: str,
) -> Datastore:
    """Replace the description and tags of a datastore.

    Raises:
        NotFound: the datastore does not exist.
        Forbidden: it is another's.
        Conflict: it is built in.
    """
    datastore = get(db, stores, workspace, name)
    if name in BUILT_IN:
        raise Conflict(f"datastore `{name}` is built in and can't be changed", _CREATE_HINT)
    changed = replace(datastore, description=description, tags=dict(tags))
    with db.write() as connection:
        _refuse_foreign(connection, datastore, user)
        store.put_datastore(connection, changed)
    return changed


def drop(db: Database, stores: Datastores, workspace: str, name: str, user: str) -> None:
    """Delete a datastore from the workspace; its files stay where they are.

    Raises:
        NotFound: the datastore does not exist.
        Conflict: it is built in.
        Forbidden: it is another's.
    """
    datastore = get(db, stores, workspace, name)
    if datastore.name in BUILT_IN:
        raise Conflict(f"datastore `{name}` is built in and can't be deleted", "leave it there")
    with db.write() as connection:
        _refuse_foreign(connection, datastore, user)
        store.drop_datastore(connection, workspace, name)


def list_in(db: Database, stores: Datastores, workspace: str) -> list[Datastore]:
    """The built-in datastores, then the others by name."""
    with db.read() as connection:
        made = store.list_datastores(connection, workspace)
    return [_built_in(stores, workspace, name) for name in BUILT_IN] + made


def get(db: Database, stores: Datastores, workspace: str, name: str) -> Datastore:
    """
    Raises:
        NotFound: with the nearest name.
    """
    if name in BUILT_IN:
        return _built_in(stores, workspace, name)
    datastores = list_in(db, stores, workspace)
    for datastore in datastores:
        if datastore.name == name:
            return datastore
    hint = did_you_mean(
        name,
        [datastore.name for datastore in datastores],
        "list what exists with `yard datastore list`",
    )
    raise NotFound(f"datastore `{name}` does not exist in workspace `{workspace}`", hint)


def open_files(db: Database, stores: Datastores, datastore: Datastore) -> Files:
    """The files of a datastore.

    Raises:
        Forbidden: who named the account that its folder is opened as may run nothing any more.
        InvalidInput: the server lacks the package that it needs, its folder has become one
            with the server's own files since it was named, or it can't be reached with its
            credentials.
    """
    protocol, _, root = datastore.url.partition("://")
    if protocol == "file":
        if datastore.name in BUILT_IN:
            return FolderFiles(Path(root))
        if datastore.options.get("account"):
            return FolderFiles(_account_folder(db, stores, datastore, Path(root)))
        folder = ServerFolder(Path(root))
        if not stores.is_listed(folder.real):
            raise _not_listed(datastore, f"its folder `{root}`")
        # The files are opened below this very folder, wherever its name leads in the next moment.
        if stores.touches(folder.real):
            raise InvalidInput(
                f"datastore `{datastore.name}` can't be used: its folder `{root}` holds files of "
                "the server itself or of the system",
                "move its files to another folder, and make the datastore again",
                code=_PRIVATE,
            )
        return FolderFiles(folder)
    if datastore.options == store.LEFT_OUT:
        raise InvalidInput(
            f"datastore `{datastore.name}` has no credentials: the backup that this server was "
            "restored from left them out",
            "give them again with `yard datastore create`",
            code="credentials_missing",
        )
    key_file = datastore.options.get("key_filename")
    if key_file and not stores.is_listed(Path(str(key_file)).resolve()):
        raise _not_listed(datastore, f"its key `{key_file}`")
    if kinds.is_kept_only(datastore):
        raise InvalidInput(
            f"datastore `{datastore.name}` has a SAS token: torchyard reaches an Azure file share "
            "by SMB, which needs the account's key",
            "create it again with the account's key; or mount the share on the server and make "
            "a datastore of `type: local`",
            code="credentials_unusable",
        )
    remote = RemoteFiles(f"datastore `{datastore.name}`", protocol, datastore.options, root)
    remote.check()
    return remote


def _account_folder(
    db: Database, stores: Datastores, datastore: Datastore, path: Path
) -> AccountFolder:
    options = datastore.options
    if stores.runner is None:
        raise InvalidInput(
            f"datastore `{datastore.name}` is read as the Unix account `{options['account']}`, and "
            "this server has no runner",
            "start the server with a runner, or make the datastore again without `account`",
            code="no_runner",
        )
    person, account = str(options["person"]), str(options["account"])
    check = partial(_refuse_unable, db, datastore)
    check()
    is_own = options.get("is_own") is True
    return AccountFolder(stores.runner, person, account, path, check, is_own)


def _refuse_unable(db: Database, datastore: Datastore) -> None:
    """
    Raises:
        Forbidden: who named the datastore's Unix account was removed, or lost the role.
    """
    person, account = (str(datastore.options[key]) for key in ("person", "account"))
    with db.read() as connection:
        is_able = rights.may_run(connection, person, datastore.workspace)
    if not is_able:
        raise Forbidden(
            f"datastore `{datastore.name}` can't be used: `{person}` named the Unix account "
            f"`{account}` in it, and may no longer run anything in workspace "
            f"`{datastore.workspace}`",
            f"a contributor can make it again with an account that they may use: `yard datastore "
            f"create`; or an owner grants `{person}` the role again",
            code=rights.CODE,
        )


def _not_listed(datastore: Datastore, part: str) -> InvalidInput:
    return InvalidInput(
        f"datastore `{datastore.name}` can't be used: {part} is in no folder that this server "
        "opens for people",
        "make it again with the Unix account that may open it: `account: …`; or ask the server's "
        "owner to list the folder with `yard-server --datastore-folder`",
        code=NOT_LISTED,
    )


def _built_in(stores: Datastores, workspace: str, name: str) -> Datastore:
    folder = stores.root(workspace, name)
    contents = "named outputs, models and uploads" if name == BLOB_STORE else "artifacts of jobs"
    return Datastore(workspace, name, "local", f"file://{folder}", _ALWAYS, description=contents)
