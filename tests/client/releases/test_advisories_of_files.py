"""Reading advisories from files, folders and zips."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.client.releases import advisories


def entry(id: str, ecosystem: str = "PyPI") -> dict[str, Any]:
    affected = {
        "package": {"ecosystem": ecosystem, "name": "six"},
        "ranges": [
            {"type": "GIT", "events": [{"introduced": "0"}]},
            {"type": "ECOSYSTEM", "events": [{"introduced": "0"}]},
        ],
        "ecosystem_specific": {"long": "x" * 1000},
    }
    return {"id": id, "details": "bad\nthing", "affected": [affected], "references": []}


def test_every_form_is_the_same_set(tmp_path: Path) -> None:
    entries = [entry("CVE-2"), entry("CVE-1"), entry("CVE-3", "npm")]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(each) + "\n" for each in entries))
    folder = tmp_path / "folder" / "deep"
    folder.mkdir(parents=True)
    for each in entries:
        (folder / f"{each['id']}.json").write_text(json.dumps(each))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for each in entries:
            archive.writestr(f"{each['id']}.json", json.dumps(each))
    names = ["list.json", "lines.jsonl", "folder", "all.zip"]
    sets = [list(advisories.pieces(tmp_path / name)) for name in names]
    assert sets[0] == sets[1] == sets[2] == sets[3]
    [piece] = sets[0]
    assert [each["id"] for each in piece["entries"]] == ["CVE-1", "CVE-2"]
    assert piece["last"]
    assert piece["entries"][0]["summary"] == "bad thing"
    assert "ecosystem_specific" not in piece["entries"][0]["affected"][0]


def test_a_large_set_is_sent_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "many.json").write_text(json.dumps([entry(f"CVE-{n}") for n in range(1201)]))
    pieces = list(advisories.pieces(tmp_path / "many.json"))
    assert [len(piece["entries"]) for piece in pieces] == [500, 500, 201]
    assert [piece["last"] for piece in pieces] == [False, False, True]
    assert len({piece["set"] for piece in pieces}) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[3]", "has no `id`"),
        (json.dumps([entry("x", "npm")]), "no advisory"),
    ],
)
def test_what_holds_no_advisories_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        list(advisories.pieces(tmp_path / "a.json"))


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        list(advisories.pieces(tmp_path / "nowhere.json"))
