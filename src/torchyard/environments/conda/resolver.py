"""The program that resolves and installs conda packages, by py-rattler.

Owns: one request (a file), its response (a file), errors as one line on standard error.
Leaves: what to request to conda_packages.py, which starts it as a separate process.
Always: the server never loads py-rattler; installed packages match the hashes of the request's
records; responses and errors name a channel by its label, never by its URL.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import rattler

# They belong to the machine that installs, and are not written into locks.
_OF_THE_PLACE = ("url", "channel", "fn")


class Refused(Exception):
    """A request that can't be fulfilled; its message goes to the build's log."""


@dataclass(frozen=True)
class Channel:
    """One part of a channel as the request names it, at the URL that answered."""

    label: str
    part: int
    url: str


def main() -> None:
    """`resolve <request> <response>` or `install <request>`, files in the current folder."""
    code = 1
    try:
        _do(*sys.argv[1:])
        code = 0
    except Exception as error:
        # py-rattler raises errors of many types; the log gets their messages.
        print(f"error: {error}", file=sys.stderr)
    sys.stderr.flush()
    # Threads of py-rattler may still run, and a regular end of Python would crash.
    os._exit(code)


def _do(verb: str, file: str, response: str = "") -> None:
    request = json.loads(Path(file).read_text(encoding="utf-8"))
    asyncio.run(_resolve(request, Path(response)) if verb == "resolve" else _install(request))


async def _resolve(request: Mapping[str, Any], response: Path) -> None:
    """Resolve the specs, with Python as one of the packages where a channel has it."""
    gateway, channels = _gateway(request), await _channels(request)
    urls = [channel.url for channel in channels]
    here = [rattler.Subdir.current(), rattler.Subdir("noarch")]
    pythons = await gateway.query(urls, here, ["python"], recursive=False)
    specs = [_spec(words, channels) for words in request["specs"]]
    if any(pythons):
        specs.append(rattler.MatchSpec(request["python"]))
    records = await rattler.solve(
        urls, specs, gateway=gateway, virtual_packages=rattler.VirtualPackage.detect()
    )
    written = [_written(record, channels) for record in records]
    response.write_text(json.dumps({"records": written}), encoding="utf-8")
    for record in sorted(records, key=lambda record: str(record.name.normalized)):
        print(f" + {record.name.normalized}={record.version}={record.build}", file=sys.stderr)


async def _install(request: Mapping[str, Any]) -> None:
    channels = await _channels(request)
    prefix = Path(request["prefix"])
    links = "" if request["may_link"] else "allow-hard-links = false\nallow-ref-links = true\n"
    await rattler.install(
        [_read(record, channels) for record in request["records"]],
        target_prefix=prefix,
        alternative_target_prefix=request["final"],
        cache_dir=Path(request["cache"]) / "pkgs",
        client=_client(),
        show_progress=False,
        config=rattler.Config.from_toml(links),
    )
    for script in sorted((prefix / "bin").glob(".*-post-link.sh")):
        print(f"warning: {script.name[1:]} is not run", file=sys.stderr)


def _client() -> rattler.Client:
    if os.environ.get("TORCHYARD_CONDA_NO_VERIFY"):
        return rattler.Client.from_config(rattler.Config.from_toml("tls-no-verify = true"))
    return rattler.Client.default_client()


def _gateway(request: Mapping[str, Any]) -> rattler.Gateway:
    return rattler.Gateway(cache_dir=Path(request["cache"]) / "repodata", client=_client())


async def _channels(request: Mapping[str, Any]) -> list[Channel]:
    """Each channel at the first of its mirrors that answers.

    Raises:
        Refused: none of them answers.
    """
    gateway, channels = _gateway(request), []
    for channel in request["channels"]:
        for part, mirrors in enumerate(channel["places"]):
            url = await _first(gateway, channel["label"], mirrors)
            channels.append(Channel(channel["label"], part, url))
    return channels


async def _first(gateway: rattler.Gateway, label: str, mirrors: Sequence[str]) -> str:
    here = [rattler.Subdir.current(), rattler.Subdir("noarch")]
    reason = "it has no URL"
    for url in mirrors:
        try:
            await gateway.names([url], here)
        except Exception as error:
            reason = str(error)
        else:
            return url.rstrip("/")
    raise Refused(f"conda channel `{label}` can't be read: {reason}")


def _spec(words: str, channels: Sequence[Channel]) -> rattler.MatchSpec:
    """A spec with the URL of its channel in place of the label."""
    label, colons, rest = words.rpartition("::")
    for channel in channels:
        if colons and channel.label == label:
            return rattler.MatchSpec(f"{channel.url}::{rest}")
    return rattler.MatchSpec(words)


def _written(record: rattler.RepoDataRecord, channels: Sequence[Channel]) -> dict[str, Any]:
    """A record for the lock, with the channel's label in place of its URL."""
    fields = json.loads(record.to_json())
    channel_url = record.url.rsplit("/", 2)[0]
    channel = next(candidate for candidate in channels if candidate.url == channel_url)
    record_fields = {key: value for key, value in fields.items() if key not in _OF_THE_PLACE}
    return {"label": channel.label, "part": channel.part, "file": record.file_name, **record_fields}


def _read(fields: Mapping[str, Any], channels: Sequence[Channel]) -> rattler.RepoDataRecord:
    for channel in channels:
        if (channel.label, channel.part) == (fields["label"], fields["part"]):
            break
    else:
        raise Refused(
            f"conda package `{fields['name']}` came from a channel that this machine no longer has"
        )
    # py-rattler reads this form from files only.
    file = Path("conda-record.json")
    file.write_text(json.dumps(fields), encoding="utf-8")
    record = rattler.PackageRecord.from_index_json(
        file, size=fields.get("size"), sha256=fields.get("sha256"), md5=fields.get("md5")
    )
    url = f"{channel.url}/{fields['subdir']}/{fields['file']}"
    if url.startswith("file:") and fields.get("sha256"):
        _check(url, fields)
    return rattler.RepoDataRecord(record, fields["file"], url, channel.url)


def _check(url: str, fields: Mapping[str, Any]) -> None:
    """Check a file's hash: py-rattler checks those of downloads, but not of local files."""
    with open(unquote(urlsplit(url).path), "rb") as file:
        digest = hashlib.sha256(file.read())
    if digest.hexdigest() != fields["sha256"]:
        raise Refused(
            f"conda package `{fields['name']}` differs from the lock: "
            f"channel `{fields['label']}` now has another {fields['file']}"
        )


if __name__ == "__main__":
    main()
