"""Secrets of a home: encrypted in a backup, or not in it at all."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import torchyard.server  # noqa: F401  (the tables of every package)
from jobs import support
from torchyard.backups import actions
from torchyard.backups import secrets as secret_parts
from torchyard.base.clock import FakeClock
from torchyard.base.errors import Conflict, InvalidInput, TorchyardError
from torchyard.base.home import home_database, signing
from torchyard.base.home.passphrases import passphrase_in
from torchyard.connections import actions as connections
from torchyard.data import datastores, kinds, store
from torchyard.data.datastores import Datastores
from torchyard.jobs import actions as job_actions
from torchyard.jobs.records.types import parse_job
from torchyard.jobs.requests import job_queries
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces

WORKSPACE = "default"
PASSPHRASE = "correct horse battery"
KEY = "AKIA-very-secret-key"
TOKEN = "hf_abcdefghijklmnop"
PAT = "ghp_very-secret-token"
HOOK = "T0/B1/very-secret-path"

Open = Callable[[Path], Services]


@pytest.fixture
def open_home(clock: FakeClock) -> Iterator[Open]:
    opened: list[Services] = []

    def opening(home: Path) -> Services:
        home.mkdir(exist_ok=True)
        db = home_database.open_for(home, home_database.chosen(home, ""))
        opened.append(support.make_services(home, db, clock))
        return opened[-1]

    yield opening
    for services in opened:
        services.db.close()


@pytest.fixture
def services(open_home: Open, tmp_path: Path) -> Services:
    """A home with a datastore's key, a job's token, a signing key and a certificate's key."""
    services = open_home(tmp_path / "home")
    support.submit(services, name="trains", environment_variables={"HF_TOKEN": TOKEN, "A": "plain"})
    document = {"name": "far", "type": "s3", "bucket": "b"}
    credentials = {"access_key_id": "me", "secret_access_key": KEY}
    made = kinds.read_document(
        {**document, "credentials": credentials}, WORKSPACE, services.clock.now()
    )
    with services.db.write() as connection:
        store.put_datastore(connection, made)
    made_connection = {
        "category": "Git",
        "target": "https://git.example.org",
        "authType": "PAT",
        "credentials": {"pat": PAT},
    }
    connections.put(services.db, services.clock, WORKSPACE, "my-git", "dan", made_connection)
    recipients = {
        "notify": [{"url_env": "CHAT_URL"}],
        "notify_secrets": {"CHAT_URL": f"https://hooks.example.org/{HOOK}"},
    }
    workspaces.update(services.db, WORKSPACE, recipients, lambda stored: None)
    signing.key(services.home, "test")
    (services.home / "tls").mkdir()
    (services.home / "tls" / "ca.pem").write_text("private key of ca")
    return services


def _everything(folder: Path) -> bytes:
    """All bytes of a backup, also those that no file shows."""
    if folder.is_dir():
        return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return folder.read_bytes()


def _options(services: Services) -> dict[str, object]:
    return dict(datastores.get(services.db, services.datastores, WORKSPACE, "far").options)


def _document(services: Services) -> dict[str, object]:
    (job,) = job_queries.list_in(services, WORKSPACE)
    return dict(job_actions.get(services, WORKSPACE, job.name).document)


@pytest.mark.parametrize("name", ["b.tar", "folder"])
def test_without_a_passphrase_no_secret_is_in_a_backup(
    services: Services, open_home: Open, tmp_path: Path, name: str
) -> None:
    done = actions.backup(services.home, "", tmp_path / name)
    content = _everything(tmp_path / name)
    key = (services.home / signing.FILE).read_bytes()
    for secret in (
        KEY.encode(),
        TOKEN.encode(),
        PAT.encode(),
        HOOK.encode(),
        key,
        b"private key of ca",
    ):
        assert secret not in content
    assert b"plain" in content
    assert done.missing == [
        "secrets of the webhooks of workspace `default`",
        "the credentials of connection `my-git` in workspace `default`",
        "the credentials of datastore `far` in workspace `default`",
        "variables of job `trains` in workspace `default`",
        "the key of signed addresses and tokens of Azure ML's clients",
        "the server's own certificate authority and its keys",
    ]
    again = actions.restore(tmp_path / "again", "", tmp_path / name)
    assert again.missing == done.missing
    restored = open_home(tmp_path / "again")
    assert KEY not in json.dumps(_options(restored))
    (job,) = job_queries.list_in(restored, WORKSPACE)
    variables = parse_job(job).spec.environment_variables
    assert variables["A"] == "plain"  # its history can still be read
    assert not (restored.home / secret_parts.FILE).exists()
    far = datastores.get(restored.db, restored.datastores, WORKSPACE, "far")
    with pytest.raises(InvalidInput, match="left them out") as refusal:
        datastores.open_files(restored.db, Datastores(restored.home / "datastores"), far)
    assert refusal.value.code == "credentials_missing"
    git = connections.get(restored.db, WORKSPACE, "my-git")
    assert git.target == "https://git.example.org"
    with pytest.raises(InvalidInput, match="left them out"):
        connections.refuse_left_out(git)


def test_a_job_whose_secrets_are_missing_does_not_start(
    services: Services, open_home: Open, tmp_path: Path
) -> None:
    from torchyard.executors.fake import FakeExecutor
    from torchyard.jobs.scheduler import Scheduler

    actions.backup(services.home, "", tmp_path / "b.tar")
    actions.restore(tmp_path / "again", "", tmp_path / "b.tar")
    restored = open_home(tmp_path / "again")
    Scheduler(restored, FakeExecutor(), "http://127.0.0.1:1").run_round()
    (job,) = job_queries.list_in(restored, WORKSPACE)
    assert job.error is not None and "`HF_TOKEN`" in job.error.message, job


def test_a_passphrase_brings_every_secret_back(
    services: Services, open_home: Open, tmp_path: Path
) -> None:
    done = actions.backup(services.home, "", tmp_path / "b.tar", PASSPHRASE)
    assert done.missing == []
    content = _everything(tmp_path / "b.tar")
    assert KEY.encode() not in content and TOKEN.encode() not in content
    assert actions.restore(tmp_path / "again", "", tmp_path / "b.tar", PASSPHRASE).missing == []
    restored = open_home(tmp_path / "again")
    assert _options(restored) == _options(services) and KEY in json.dumps(_options(restored))
    assert _document(restored) == _document(services)
    assert connections.get(restored.db, WORKSPACE, "my-git").credentials == {"pat": PAT}
    for file in (signing.FILE, "tls/ca.pem"):
        assert (restored.home / file).read_bytes() == (services.home / file).read_bytes()
        assert (restored.home / file).stat().st_mode & 0o777 == 0o600
    # The records of the running server are as they were.
    assert TOKEN in json.dumps(_document(services))


def test_a_wrong_passphrase_restores_nothing(services: Services, tmp_path: Path) -> None:
    actions.backup(services.home, "", tmp_path / "b.tar", PASSPHRASE)
    with pytest.raises(InvalidInput, match="does not open the secrets") as refusal:
        actions.restore(tmp_path / "again", "", tmp_path / "b.tar", PASSPHRASE + "x")
    assert refusal.value.code == "wrong_passphrase"
    assert not (tmp_path / "again").exists()
    missing = actions.restore(tmp_path / "again", "", tmp_path / "b.tar").missing
    assert len(missing) == 6


def test_changed_secrets_are_refused() -> None:
    secrets = secret_parts.Secrets((("signing.key", "AAAA"),))
    body = json.loads(secret_parts.to_json(secrets, PASSPHRASE))
    target = Path("b.tar")
    content = json.dumps(body).encode()
    assert secret_parts.from_json(content, PASSPHRASE, target)[0] == secrets
    cipher = body["cipher"]
    for changed in (
        {"cipher": ("B" if cipher[0] != "B" else "C") + cipher[1:]},
        {"nonce": "AAAAAAAAAAAAAAAA"},
        {"scrypt": {"n": 1 << 40, "r": 8, "p": 1}},
        {"salt": 7},
    ):
        with pytest.raises(InvalidInput):
            secret_parts.from_json(json.dumps({**body, **changed}).encode(), PASSPHRASE, target)


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [("short\n", 0o600, "shorter than 12"), (f"{PASSPHRASE}\n", 0o640, "others can read")],
)
def test_a_passphrase_file_that_is_not_good(
    content: str, mode: int, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "passphrase"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(InvalidInput, match=message):
        passphrase_in(file)
    with pytest.raises(InvalidInput, match="can't be read"):
        passphrase_in(tmp_path / "none")


@pytest.mark.slow
def test_the_command_says_what_is_missing(services: Services, tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_text(f"{PASSPHRASE}\n")
    file.chmod(0o600)
    command = [sys.executable, "-m", "torchyard.backups"]
    options = ["--home", str(services.home), "--passphrase-file", str(file)]
    made = subprocess.run(
        [*command, "backup", *options, str(tmp_path / "b.tar")], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["missing"] == []
    with tarfile.open(tmp_path / "b.tar") as tar:
        described = tar.extractfile(secret_parts.FILE)
        assert described is not None and json.load(described)["method"].startswith("scrypt")
    options = ["--home", str(tmp_path / "again")]
    restored = subprocess.run(
        [*command, "restore", *options, str(tmp_path / "b.tar")], capture_output=True, text=True
    )
    assert len(json.loads(restored.stdout)["missing"]) == 6


def test_a_backup_of_a_development_version_is_named(services: Services, tmp_path: Path) -> None:
    old_home = tmp_path / "old"
    actions.backup(services.home, "", old_home)
    about = json.loads((old_home / "about.json").read_text())
    (old_home / "about.json").write_text(json.dumps({**about, "schema": "0015"}))
    with pytest.raises(Conflict) as refusal:
        actions.restore(tmp_path / "again", "", old_home)
    assert refusal.value.message.startswith(f"the backup `{old_home}` was made by a development")
    assert isinstance(refusal.value, TorchyardError) and ".part" not in refusal.value.message
