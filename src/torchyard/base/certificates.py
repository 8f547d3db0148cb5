"""The server's own certificate authority, and the certificate it gives itself.

Owns: the folder `tls/` of the home: one authority for all servers of the home, one certificate a
machine; when a certificate is renewed.
Leaves: listening with them to app/listeners.py, trusting the authority to the clients.
Always: a private key never leaves its file, which only its owner reads; each file holds key and
certificate, so that they are replaced together; whatever is on the disk and still good is kept.

`cryptography` is imported only to make something: a server that has its certificate starts without.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.base.clock import from_text, to_text
from torchyard.base.files import write_atomically
from torchyard.shared import locks

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

FOLDER = "tls"
_AUTHORITY_DAYS = 20 * 365
# The longest that Apple's and others' clients take: https://support.apple.com/102028
_DAYS = 397
_RENEWED_BEFORE = timedelta(days=_DAYS // 3)
# Clients' clocks may be wrong.
_BACKDATED = timedelta(days=1)
_MOST_NAMES = 50
_OWN = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})?(\.[a-z0-9_-]{1,63})*", re.ASCII)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----\n?")
_TOLD = "# torchyard: "


@dataclass(frozen=True)
class Issued:
    """The server's certificate and key, in one PEM file, and what is known of it."""

    file: Path
    names: frozenset[str]
    ends_at: datetime
    authority: str

    def is_due(self, now: datetime) -> bool:
        """Whether it is time for another one."""
        return now >= self.ends_at - _RENEWED_BEFORE


def authority_file(home: Path) -> Path:
    return home / FOLDER / "ca.pem"


def is_made(home: Path) -> bool:
    """Whether the home has an authority."""
    return authority_file(home).exists()


def authority(home: Path) -> str:
    """The authority's certificate as PEM text; without its key.

    Raises:
        OSError: there is none.
        ValueError: the file is something else.
    """
    certificate = _CERTIFICATE.search(authority_file(home).read_text())
    if certificate is None:
        raise ValueError(f"`{authority_file(home)}` holds no certificate")
    return certificate[0]


def read_stored(home: Path) -> Issued | None:
    """This machine's certificate; None when there is none, or it can't be read."""
    file = _file(home)
    try:
        with open(file, encoding="ascii") as opened:
            line = opened.readline()
        header = json.loads(line.removeprefix(_TOLD))
        return Issued(
            file,
            frozenset(header["names"]),
            from_text(header["ends_at"]),
            str(header["authority"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def first_name(certificate: Path) -> str:
    """A host name that the certificate in a PEM file is good for; empty when there is none."""
    from cryptography import x509

    try:
        parsed = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return ""
    hosts = [name for name in names.get_values_for_type(x509.DNSName) if "*" not in name]
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return next(iter(hosts + addresses), "")


def ensure(home: Path, names: Collection[str], now: datetime) -> Issued:
    """A certificate that is good for all of `names`, made where it has to be.

    Args:
        names: host names and addresses, beside those that this machine always has; what can be
            neither is left out.

    Raises:
        OSError: the folder can't be written.
    """
    server_names = frozenset(
        name for name in map(_as_name, (*_OWN, os.uname().nodename, *names)) if name
    )
    issued = _good(home, server_names, now)
    if issued is not None:
        return issued
    folder = home / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.hold(folder / "lock"):
        issued = _good(home, server_names, now)
        if issued is not None:
            return issued
        before = read_stored(home)
        if before is not None and len(before.names | server_names) <= _MOST_NAMES:
            server_names |= before.names
        return _issue(home, server_names, now)


def _good(home: Path, server_names: frozenset[str], now: datetime) -> Issued | None:
    issued = read_stored(home)
    if issued is None or not server_names <= issued.names or issued.is_due(now):
        return None
    try:
        return issued if issued.authority == _mark(authority(home)) else None
    except (OSError, ValueError):
        return None


def _file(home: Path) -> Path:
    # Machines that share a home have names of their own.
    host = re.sub(r"[^\w-]", "_", os.uname().nodename)[:60] or "server"
    return home / FOLDER / f"server.{host}.pem"


def _as_name(name: str) -> str:
    """As certificates write it; empty when it can't be in one."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        name = name.rstrip(".").lower()
        return name if _NAME.fullmatch(name) else ""


def _mark(certificate: str) -> str:
    """What tells one authority from the next."""
    return certificate.strip().splitlines()[-2]


def _issue(home: Path, names: frozenset[str], now: datetime) -> Issued:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signer, signing_key = _authority(home, now)
    key = ec.generate_private_key(ec.SECP256R1())
    ends_at = min(now + timedelta(days=_DAYS) - _BACKDATED, signer.not_valid_after_utc)
    made = (
        _begun("torchyard", key, now, ends_at)
        .issuer_name(signer.subject)
        .add_extension(
            x509.SubjectAlternativeName([_general(name) for name in sorted(names)]), False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(_usage(digital_signature=True), True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), False
        )
        .sign(signing_key, hashes.SHA256())
    )
    header = {
        "names": sorted(names),
        "ends_at": to_text(ends_at),
        "authority": _mark(authority(home)),
    }
    _write(_file(home), f"{_TOLD}{json.dumps(header)}\n", made, key)
    issued = read_stored(home)
    assert issued is not None
    return issued


def _authority(home: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The home's authority; a new one where there is none that lasts as long as a certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    file = authority_file(home)
    try:
        content = file.read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        key = serialization.load_pem_private_key(content, None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            lasts = certificate.not_valid_after_utc > now + timedelta(days=_DAYS)
            if lasts and certificate.public_key() == key.public_key():
                return certificate, key
    except (OSError, ValueError):
        pass
    made_key = ec.generate_private_key(ec.SECP256R1())
    # Two authorities of one name would be mistaken for each other in a bundle.
    name = f"torchyard {os.uname().nodename[:40]} {secrets.token_hex(4)}"
    begun = _begun(name, made_key, now, now + timedelta(days=_AUTHORITY_DAYS))
    made = (
        begun.issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), True)
        .sign(made_key, hashes.SHA256())
    )
    _write(file, "", made, made_key)
    return made, made_key


def _begun(
    name: str, key: ec.EllipticCurvePrivateKey, now: datetime, ends_at: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(ends_at)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _usage(**uses: bool) -> x509.KeyUsage:
    from cryptography import x509

    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: uses.get(name, False) for name in names})


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(
    file: Path, header: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    from cryptography.hazmat.primitives import serialization

    pem: Any = serialization.Encoding.PEM
    hidden = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with write_atomically(file, mode=0o600) as writing:
        writing.write(header.encode("ascii") + certificate.public_bytes(pem) + hidden)
