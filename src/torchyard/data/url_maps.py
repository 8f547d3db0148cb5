"""URL maps: read data of the internet from a datastore instead.

Owns: which URLs are mapped, and to what.
Leaves: reading to datastores.py.
Always: the longest prefix wins, and a prefix ends at a slash or at the end of the path.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import datastores, store, uris
from torchyard.data.datastores import Datastores
from torchyard.data.types import Pinned, UrlMap

_STORAGE = re.compile(
    r"(?:wasbs?|abfss?)://([^@/]+)@([^@/.]+)\.(?:blob|dfs)\.core\.windows\.net(?:/(.*))?", re.DOTALL
)
_PROTOCOLS = ("http", "https", "wasb", "wasbs", "abfs", "abfss", "adl", "s3", "gs", "hf")


def put(
    db: Database, clock: Clock, stores: Datastores, workspace: str, prefix: str, target: str
) -> UrlMap:
    """Map a prefix; `%20` in the target is a space, as in the prefix.

    Raises:
        InvalidInput: the prefix is not a URL, or the target not a datastore URI.
        NotFound: the datastore does not exist.
    """
    if uris.protocol_of(prefix) not in _PROTOCOLS:
        raise InvalidInput(
            f"`{prefix}` is not a prefix of a URL",
            "for example `https://host/path`",
            at=["prefix"],
        )
    uri = uris.datastore(unquote(target), workspace)
    if uri is None:
        raise InvalidInput(
            f"`{target}` is not a datastore URI",
            "for example `azureml://datastores/workspaceblobstore/paths/mirror`",
            at=["target"],
        )
    datastores.get(db, stores, workspace, uri.store)
    url_map = UrlMap(workspace, prefix, str(uri), clock.now())
    with db.write() as connection:
        store.put_url_map(connection, url_map)
    return url_map


def drop(db: Database, workspace: str, prefix: str) -> None:
    """
    Raises:
        NotFound: the map does not exist.
    """
    with db.write() as connection:
        dropped = store.drop_url_map(connection, workspace, prefix)
    if not dropped:
        raise NotFound(
            f"`{prefix}` is not mapped in workspace `{workspace}`",
            "list the mapped prefixes with `yard workspace map-url`",
        )


def list_in(db: Database, workspace: str) -> list[UrlMap]:
    with db.read() as connection:
        return store.list_url_maps(connection, workspace)


def apply(maps: list[UrlMap], url: str) -> Pinned:
    """`url`, or the URI that it is mapped to and a notice that says so."""
    matching = [url_map for url_map in maps if _matches(url_map.prefix, url)]
    if not matching:
        return Pinned(url)
    best = max(matching, key=lambda url_map: len(url_map.prefix))
    # A datastore's paths are written as they are, a URL's with `%20` for a space.
    rest = _plain(url)[len(_plain(best.prefix)) :].strip("/")
    target = best.target.rstrip("/")
    mapped = f"{target}/{rest}" if rest else target
    if _plain(url).endswith("/"):
        mapped += "/"
    return Pinned(mapped, (f"`{url}` is read from `{mapped}`: this workspace maps it",))


def _matches(prefix: str, url: str) -> bool:
    prefix, path = _plain(prefix), _plain(url)
    if not path.startswith(prefix):
        return False
    return prefix.endswith("/") or path[len(prefix) : len(prefix) + 1] in ("", "/")


def _plain(url: str) -> str:
    """A URL of Azure's storage as `https`, in whichever of its forms it is written: SDK v1 makes
    `wasbs://` of it.
    """
    plain = unquote(url.partition("?")[0])
    match = _STORAGE.fullmatch(plain)
    if match is None:
        return plain.replace(".dfs.core.windows.net/", ".blob.core.windows.net/", 1)
    container, account, path = match.groups()
    return f"https://{account}.blob.core.windows.net/{container}/{path or ''}"
