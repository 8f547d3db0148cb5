"""Shared access signatures: URLs that open a container, a folder or a blob for some time.

Owns: making and reading their query.
Leaves: the person's current permissions to workspaces/access.py, which is asked each time; what a
request needs to grants.py.
Always: a signature is bound to what it opens, its permissions, its expiry and the token that it was
requested with; it opens nothing when that token is revoked.

Source: https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas (the fields;
what is signed is our own, for nobody else reads it)
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import urlencode

from torchyard.azureml.blob.errors import BadSignature

LONGEST = timedelta(hours=12)
ALL = "racwdl"
READ = "rl"

_VERSION = "2021-12-02"
_KINDS = {"container": "c", "folder": "d", "blob": "b"}
_HASH = re.compile(r"[0-9a-f]{64}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Signature:
    """`path` is the folder or the blob that it opens below the container, empty for the whole
    container; `permissions` are Azure's letters.
    """

    container: str
    kind: str
    path: str
    permissions: str
    ends_at: datetime
    user: str
    token_hash: str

    def covers(self, path: str) -> bool:
        """Whether it opens a blob, or a list of blobs with a prefix."""
        if self.kind == "c":
            return True
        if self.kind == "b":
            return path == self.path
        return path.startswith(f"{self.path}/")


def sign(
    key: bytes,
    container: str,
    path: str,
    resource: str,
    permissions: str,
    user: str,
    token_hash: str,
    now: datetime,
    lasts: timedelta = LONGEST,
) -> str:
    """The query of a URL that opens it.

    Args:
        resource: container, folder or blob.
        lasts: at most `LONGEST`.
    """
    kind = _KINDS[resource]
    ends_at = (now + min(lasts, LONGEST)).astimezone(timezone.utc)
    fields = {
        "sv": _VERSION,
        "sr": kind,
        "sp": permissions,
        "se": ends_at.strftime(_TIME),
        "skoid": user,
        "sktid": token_hash,
    }
    if kind == "d":
        fields["sdd"] = str(len(path.split("/")))
    return urlencode({**fields, "sig": _sig(key, fields, container, path)})


def read(
    key: bytes, query: Mapping[str, str], container: str, path: str, now: datetime
) -> Signature:
    """The signature in a request's query.

    Args:
        path: the requested blob, or the prefix of a list.

    Raises:
        BadSignature: it is invalid, was made for another place, or has expired.
    """
    names = ("sv", "sr", "sp", "se", "skoid", "sktid", "sdd")
    fields = {name: query[name] for name in names if name in query}
    opened = _opened(fields, path)
    expected = _sig(key, fields, container, opened)
    if not hmac.compare_digest(query.get("sig", "").encode(), expected.encode()):
        raise BadSignature(
            "the signature of this URL was not made by this server for this place, or the URL was "
            "changed",
            "request a new one: the SDK does so when it is started again",
        )
    ends_at = datetime.strptime(fields["se"], _TIME).replace(tzinfo=timezone.utc)
    if ends_at <= now:
        raise BadSignature(
            f"the signature of this URL expired at {ends_at:%Y-%m-%d %H:%M} UTC",
            "request a new one: the SDK does so when it is started again",
        )
    return Signature(
        container, fields["sr"], opened, fields["sp"], ends_at, fields["skoid"], fields["sktid"]
    )


def _opened(fields: Mapping[str, str], path: str) -> str:
    if fields.get("sr") == "b":
        return path
    depth = fields.get("sdd", "")
    if fields.get("sr") == "d" and depth.isdecimal() and len(depth) < 4:
        return "/".join(path.split("/")[: int(depth)])
    return ""


def _sig(key: bytes, fields: Mapping[str, str], container: str, path: str) -> str:
    signed = "\n".join([container, path, *(f"{name}={fields[name]}" for name in sorted(fields))])
    digest = hmac.digest(key, signed.encode("utf-8", "surrogateescape"), "sha256")
    return base64.b64encode(digest).decode()
