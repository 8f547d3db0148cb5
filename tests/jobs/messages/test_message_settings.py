"""The file that `yard-server --messages` names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.jobs.messages import settings
from torchyard.jobs.messages.settings import MessageSettings, SmtpSettings

SMTP = {"host": "mail.example.org", "sender": "yard@example.org"}


def _file(tmp_path: Path, document: Any) -> Path:
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(document))
    return file


def test_without_a_file_nothing_private_is_reached() -> None:
    assert settings.read(None) == MessageSettings()


def test_a_file_with_everything(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    smtp = {**SMTP, "user": "yard", "password_file": "password", "tls": "tls"}
    file = _file(tmp_path, {"smtp": smtp, "allow_networks": ["10.0.0.0/8"], "ca_cert": "ca.pem"})
    read = settings.read(file)
    assert read.smtp == SmtpSettings(
        "mail.example.org", 465, "tls", "yard@example.org", "yard", password
    )
    assert read.smtp.password() == "correct horse"
    assert [str(network) for network in read.allow_networks] == ["10.0.0.0/8"]
    assert read.ca_cert == str(tmp_path / "ca.pem")
    assert read.files == [file, password]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "is not a mapping"),
        ({"mail": {}}, "`mail`"),
        ({"smtp": {**SMTP, "to": "x"}}, "`to`"),
        ({"smtp": {"sender": "a@b.org"}}, "no valid `host`"),
        ({"smtp": {**SMTP, "sender": "a@b.org\nBcc: c@d.org"}}, "no valid `sender`"),
        ({"smtp": {**SMTP, "tls": "ssl"}}, "`tls` is `ssl`"),
        ({"smtp": {**SMTP, "port": 70000}}, "`port` must be between 1 and 65535, not 70000"),
        ({"smtp": {**SMTP, "user": "yard"}}, "both `user` and `password_file`"),
        ({"smtp": {**SMTP, "user": "yard", "password_file": "absent"}}, "can't be read"),
        (
            {"smtp": {**SMTP, "user": "yard", "password_file": "p", "tls": "none"}},
            "would travel unencrypted",
        ),
        ({"allow_networks": "10.0.0.0/8"}, "must be a list"),
        ({"allow_networks": ["intranet"]}, "`intranet`"),
    ],
)
def test_what_is_wrong_with_the_file_is_named(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings.read(_file(tmp_path, document))
    assert says in refused.value.message


def test_a_password_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("correct horse")
    (tmp_path / "password").chmod(0o644)
    file = _file(tmp_path, {"smtp": {**SMTP, "user": "yard", "password_file": "password"}})
    with pytest.raises(InvalidInput, match="can be read by everybody") as refused:
        settings.read(file)
    assert "correct horse" not in str(refused.value)
