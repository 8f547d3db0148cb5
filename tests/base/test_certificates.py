"""The server's own authority and certificate, as a client checks them."""

from __future__ import annotations

import ssl
import stat
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from torchyard.base import certificates
from torchyard.base.certificates import Issued

NOW = datetime.now(timezone.utc)


def shake_hands(issued: Issued, authority: str, name: str) -> None:
    """A client that trusts the authority alone, and calls the server by the name.

    Raises:
        ssl.SSLError: it does not trust the certificate.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(issued.file)
    asking = ssl.create_default_context(cadata=authority)
    # What Python 3.13 asks of every certificate.
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() in ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "gpu-box", "10.1.2.3"])
def test_a_client_that_trusts_the_authority_trusts_the_server(tmp_path: Path, name: str) -> None:
    issued = certificates.ensure(tmp_path, ["GPU-box.", "10.1.2.3"], NOW)
    shake_hands(issued, certificates.authority(tmp_path), name)


def test_other_names_and_other_servers_are_not_trusted(tmp_path: Path) -> None:
    issued = certificates.ensure(tmp_path / "one", [], NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere'"):
        shake_hands(issued, certificates.authority(tmp_path / "one"), "elsewhere")
    certificates.ensure(tmp_path / "two", [], NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(issued, certificates.authority(tmp_path / "two"), "localhost")


def test_only_the_owner_reads_the_keys(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, [], NOW)
    folder = tmp_path / certificates.FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert "PRIVATE" not in certificates.authority(tmp_path)


def test_it_is_made_once(tmp_path: Path) -> None:
    assert not certificates.is_made(tmp_path) and certificates.read_stored(tmp_path) is None
    made = certificates.ensure(tmp_path, ["a"], NOW)
    content = made.file.read_bytes()
    assert certificates.ensure(tmp_path, ["a"], NOW + timedelta(days=100)) == made
    assert certificates.ensure(tmp_path, [], NOW) == made == certificates.read_stored(tmp_path)
    assert made.file.read_bytes() == content
    assert timedelta(days=390) < made.ends_at - NOW < timedelta(days=398)


def test_another_name_is_added_to_those_before(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, ["first"], NOW)
    before = certificates.authority(tmp_path)
    made = certificates.ensure(tmp_path, ["second"], NOW)
    assert {"first", "second", "localhost"} <= made.names
    assert certificates.authority(tmp_path) == before
    for name in ("first", "second"):
        shake_hands(made, before, name)


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "*.com", "a" * 300, "é", "-a", "a..b"])
def test_what_is_no_name_is_left_out(tmp_path: Path, name: str) -> None:
    assert name not in certificates.ensure(tmp_path, [name], NOW).names


def test_it_is_renewed_before_it_ends(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path, ["a"], NOW - timedelta(days=300))
    assert first.is_due(NOW)
    second = certificates.ensure(tmp_path, [], NOW)
    assert second.ends_at > first.ends_at and not second.is_due(NOW)
    assert "a" in second.names
    shake_hands(second, certificates.authority(tmp_path), "a")


def test_an_authority_near_its_end_is_replaced_with_what_it_signed(tmp_path: Path) -> None:
    long_ago = NOW - timedelta(days=19.5 * 365)
    certificates.ensure(tmp_path, [], long_ago)
    before = certificates.authority(tmp_path)
    made = certificates.ensure(tmp_path, [], NOW)
    assert certificates.authority(tmp_path) != before
    shake_hands(made, certificates.authority(tmp_path), "localhost")


@pytest.mark.parametrize("content", [b"", b"half a fi", b"\xff\x00"])
def test_files_that_are_damaged_are_made_again(tmp_path: Path, content: bytes) -> None:
    made = certificates.ensure(tmp_path, [], NOW)
    made.file.write_bytes(content)
    again = certificates.ensure(tmp_path, [], NOW)
    shake_hands(again, certificates.authority(tmp_path), "localhost")
    certificates.authority_file(tmp_path).write_bytes(content)
    again = certificates.ensure(tmp_path, [], NOW)
    shake_hands(again, certificates.authority(tmp_path), "localhost")


def test_many_at_once_make_one_authority(tmp_path: Path) -> None:
    names_found: list[str] = []

    def make(name: str) -> None:
        certificates.ensure(tmp_path, [name], NOW)
        names_found.append(certificates.authority(tmp_path))

    threads = [threading.Thread(target=make, args=(f"name-{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names_found) == 8 and len(set(names_found)) == 1
    stored = certificates.read_stored(tmp_path)
    assert stored is not None and {f"name-{i}" for i in range(8)} <= stored.names


def test_a_name_of_a_certificate_that_was_given(tmp_path: Path) -> None:
    issued = certificates.ensure(tmp_path, [], NOW)
    assert certificates.first_name(issued.file) in issued.names
    assert certificates.first_name(tmp_path / "none") == ""
