"""The program that resolves and installs conda packages, by py-rattler.

Owns: one order (a file), its answer (a file), errors as one line on standard error.
Leaves: what is asked, and where, to conda_packages.py, which starts it as a process of its own.
Always: the server never loads py-rattler; what is installed is what the order's records say, by
their hashes; a channel is known by its label, which is all that an answer or an error names.
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

# Of the machine that installs: they belong in no lock.
_OF_THE_PLACE = ("url", "channel", "fn")


class Refused(Exception):
    """What can't be done, in words for the build's log."""


@dataclass(frozen=True)
class Channel:
    """One part of a channel as the order names it, at the URL that answered."""

    label: str
    part: int
    url: str


def main() -> None:
    """`resolve <order> <answer>` or `install <order>`, files of the current folder."""
    code = 1
    try:
        _do(*sys.argv[1:])
        code = 0
    except Exception as error:
        # Those of py-rattler are of many kinds; what they say is for the log.
        print(f"error: {error}", file=sys.stderr)
    sys.stderr.flush()
    # Threads of py-rattler may still be there, and Python dies of them when it ends in order.
    os._exit(code)


def _do(verb: str, file: str, answer: str = "") -> None:
    order = json.loads(Path(file).read_text(encoding="utf-8"))
    asyncio.run(_resolve(order, Path(answer)) if verb == "resolve" else _install(order))


async def _resolve(order: Mapping[str, Any], answer: Path) -> None:
    """Python is one of the packages where a channel has it."""
    gateway, channels = _gateway(order), await _channels(order)
    urls = [channel.url for channel in channels]
    here = [rattler.Subdir.current(), rattler.Subdir("noarch")]
    found = await gateway.query(urls, here, ["python"], recursive=False)
    specs = [_spec(words, channels) for words in order["specs"]]
    if any(found):
        specs.append(rattler.MatchSpec(order["python"]))
    records = await rattler.solve(
        urls, specs, gateway=gateway, virtual_packages=rattler.VirtualPackage.detect()
    )
    written = [_written(record, channels) for record in records]
    answer.write_text(json.dumps({"records": written}), encoding="utf-8")
    for record in sorted(records, key=lambda record: str(record.name.normalized)):
        print(f" + {record.name.normalized}={record.version}={record.build}", file=sys.stderr)


async def _install(order: Mapping[str, Any]) -> None:
    channels = await _channels(order)
    prefix = Path(order["prefix"])
    links = "" if order["may_link"] else "allow-hard-links = false\nallow-ref-links = true\n"
    await rattler.install(
        [_read(record, channels) for record in order["records"]],
        target_prefix=prefix,
        alternative_target_prefix=order["final"],
        cache_dir=Path(order["cache"]) / "pkgs",
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


def _gateway(order: Mapping[str, Any]) -> rattler.Gateway:
    return rattler.Gateway(cache_dir=Path(order["cache"]) / "repodata", client=_client())


async def _channels(order: Mapping[str, Any]) -> list[Channel]:
    """Each at the first of its mirrors that answers.

    Raises:
        Refused: none of them does.
    """
    gateway, found = _gateway(order), []
    for said in order["channels"]:
        for part, mirrors in enumerate(said["places"]):
            url = await _first(gateway, said["label"], mirrors)
            found.append(Channel(said["label"], part, url))
    return found


async def _first(gateway: rattler.Gateway, label: str, mirrors: Sequence[str]) -> str:
    here = [rattler.Subdir.current(), rattler.Subdir("noarch")]
    why = "it has no place"
    for url in mirrors:
        try:
            await gateway.names([url], here)
        except Exception as error:
            why = str(error)
        else:
            return url.rstrip("/")
    raise Refused(f"conda channel `{label}` can't be read: {why}")


def _spec(words: str, channels: Sequence[Channel]) -> rattler.MatchSpec:
    """`channel::name`, with the channel where it lies on this machine."""
    label, colons, rest = words.rpartition("::")
    for channel in channels:
        if colons and channel.label == label:
            return rattler.MatchSpec(f"{channel.url}::{rest}")
    return rattler.MatchSpec(words)


def _written(record: rattler.RepoDataRecord, channels: Sequence[Channel]) -> dict[str, Any]:
    """A record for the lock: of its place only the channel's label and the file's name."""
    said = json.loads(record.to_json())
    where = record.url.rsplit("/", 2)[0]
    channel = next(one for one in channels if one.url == where)
    kept = {key: value for key, value in said.items() if key not in _OF_THE_PLACE}
    return {"label": channel.label, "part": channel.part, "file": record.file_name, **kept}


def _read(said: Mapping[str, Any], channels: Sequence[Channel]) -> rattler.RepoDataRecord:
    for channel in channels:
        if (channel.label, channel.part) == (said["label"], said["part"]):
            break
    else:
        raise Refused(
            f"conda package `{said['name']}` came from a channel that this machine has no more"
        )
    # Only files are read by py-rattler in this form.
    file = Path("conda-record.json")
    file.write_text(json.dumps(said), encoding="utf-8")
    record = rattler.PackageRecord.from_index_json(
        file, size=said.get("size"), sha256=said.get("sha256"), md5=said.get("md5")
    )
    url = f"{channel.url}/{said['subdir']}/{said['file']}"
    if url.startswith("file:") and said.get("sha256"):
        _check(url, said)
    return rattler.RepoDataRecord(record, said["file"], url, channel.url)


def _check(url: str, said: Mapping[str, Any]) -> None:
    """What lies in a folder is not compared by py-rattler, as what it downloads is."""
    with open(unquote(urlsplit(url).path), "rb") as file:
        found = hashlib.sha256(file.read())
    if found.hexdigest() != said["sha256"]:
        raise Refused(
            f"conda package `{said['name']}` is not what the lock says: "
            f"channel `{said['label']}` has another {said['file']} now"
        )


if __name__ == "__main__":
    main()
