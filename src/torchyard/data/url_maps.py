"""URL maps: data of the internet, found at home.

Owns: which URLs are read from a datastore instead.
Leaves: reading it to datastores.py.
Always: the longest prefix wins, and a prefix ends where a part of the path does.
"""

from __future__ import annotations

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import datastores, store, uris
from torchyard.data.datastores import Datastores
from torchyard.data.types import Pinned, UrlMap

_PROTOCOLS = ("http", "https", "wasb", "wasbs", "abfs", "abfss", "adl", "s3", "gs", "hf")


def put(
    db: Database, clock: Clock, stores: Datastores, workspace: str, prefix: str, target: str
) -> UrlMap:
    """
    Raises:
        InvalidInput: the prefix is no URL, or the target no datastore URI.
        NotFound: there is no such datastore.
    """
    if uris.protocol_of(prefix) not in _PROTOCOLS:
        raise InvalidInput(
            f"`{prefix}` is no prefix of a URL", "for example `https://host/path`", at=["prefix"]
        )
    uri = uris.datastore(target, workspace)
    if uri is None:
        raise InvalidInput(
            f"`{target}` is no datastore URI",
            "for example `azureml://datastores/workspaceblobstore/paths/mirror`",
            at=["target"],
        )
    datastores.get(db, stores, workspace, uri.store)
    made = UrlMap(workspace, prefix, str(uri), clock.now())
    with db.write() as connection:
        store.put_url_map(connection, made)
    return made


def drop(db: Database, workspace: str, prefix: str) -> None:
    """
    Raises:
        NotFound: there is no such map.
    """
    with db.write() as connection:
        dropped = store.drop_url_map(connection, workspace, prefix)
    if not dropped:
        raise NotFound(
            f"`{prefix}` is not mapped in workspace `{workspace}`",
            "list what is with `yard workspace map-url`",
        )


def list_in(db: Database, workspace: str) -> list[UrlMap]:
    with db.read() as connection:
        return store.list_url_maps(connection, workspace)


def apply(maps: list[UrlMap], url: str) -> Pinned:
    """`url` itself, or what it is mapped to with a notice of that."""
    fitting = [made for made in maps if _fits(made.prefix, url)]
    if not fitting:
        return Pinned(url)
    best = max(fitting, key=lambda made: len(made.prefix))
    rest = url[len(best.prefix) :].partition("?")[0].strip("/")
    target = best.target.rstrip("/")
    mapped = f"{target}/{rest}" if rest else target
    if url.endswith("/"):
        mapped += "/"
    return Pinned(mapped, (f"`{url}` is read from `{mapped}`: this workspace maps it",))


def _fits(prefix: str, url: str) -> bool:
    if not url.startswith(prefix):
        return False
    return prefix.endswith("/") or url[len(prefix) : len(prefix) + 1] in ("", "/", "?")
