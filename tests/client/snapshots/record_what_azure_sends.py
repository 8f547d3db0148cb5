"""Print what azure-ai-ml sends of folders with random ignore files, as JSON.

    .azure-clients/azure-ai-ml-1.35/bin/python tests/client/snapshots/record_what_azure_sends.py \
        >tests/client/snapshots/what_azure_sends.json

Owns: the corpus; by hand, when the pinned client changes.
Leaves: comparing it with what `yard` sends to test_ignore_rules.py.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from azure.ai.ml._utils._asset_utils import get_ignore_file, get_upload_files_from_folder

NAMES = ["a", "b", "ab", "a.py", "b.py", "x.log", "a b", "#x", "!x", "-"]
FOLDERS = ["a", "ab", "src", "pkg", "b.py"]
PIECES = ["a", "b", "ab", "src", "pkg", "*", "**", "?", "[ab]", "[!a]", "*.py", "a*", "\\#x"]
# Written by people: only some folders, and exceptions of exceptions.
WRITTEN = [
    ["*", "!/pkg/", "!pkg/**", "**/x.log"],
    ["*", "!/pkg/", "!a.py"],
    ["/*", "!/src", "!/pkg/"],
    ["**", "!src/**", "src/a"],
    ["*", "!*.py", "/ab/"],
    ["src/", "!src/a.py"],
    ["*.py", "!src/*.py", "!**/b.py"],
    ["pkg", "!pkg/a", "pkg/a/b"],
    ["  src/", "\t# pkg", "ab\t", " !src/a.py  "],
    ["[^a]", "[^b].py", "pkg/[^a]*"],
    ["*", "!/pkg/**/", "!src/**/**/", "/**/"],
]
# Folders that are links, and those that links lead to.
WITH_LINKS = [
    ["pkg/"],
    ["pkg-link/"],
    ["a-link", "links"],
    ["*", "!/pkg-link/"],
    ["*", "!/links/", "!/pkg/"],
    ["src/", "!src/pkg/"],
]


def rules(chance: random.Random) -> list[str]:
    lines = []
    for _ in range(6):
        line = "/".join(chance.choice(PIECES) for _ in range(chance.choice([1, 1, 2, 3])))
        line = chance.choice(["", "", "", "/"]) + line + chance.choice(["", "", "/", "/**"])
        lines.append(chance.choice(["", "", "!"]) + line)
    return lines


def add_links(chance: random.Random, top: Path) -> dict[str, str]:
    """Links to folders and files, none of which leads back to itself.

    Only at the top: azure-ai-ml also follows those in excluded folders, which `yard` does not
    enter where no later rule includes something of them.
    """
    targets = sorted(path for path in top.rglob("*") if path.is_dir() or len(path.name) > 1)
    links = {}
    for name in ("a-link", "pkg-link", "link.py", "a2", "links", "x"):
        target = chance.choice(targets)
        link = top / name
        link.symlink_to(target)
        links[name] = str(target.relative_to(top))
    return links


def case(chance: random.Random, lines: list[str], linked: bool = False) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name).resolve()
        for _ in range(60):
            parts = [chance.choice(FOLDERS) for _ in range(chance.randrange(4))]
            file = top.joinpath(*parts, chance.choice(NAMES))
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
            except OSError:
                continue  # a file stands where the folder should
        links = add_links(chance, top) if linked else {}
        (top / ".amlignore").write_text("\n".join(lines) + "\n")
        files = [str(file.relative_to(top)) for file in top.rglob("*") if is_plain(file)]
        sent = get_upload_files_from_folder(top, ignore_file=get_ignore_file(top))
        names = [name for _, name in sent]
    body = {"lines": lines, "files": sorted(files), "sent": sorted(names)}
    return {**body, "links": links} if linked else body


def is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def main() -> None:
    chance = random.Random(7)
    cases = [case(chance, lines) for lines in (*WRITTEN, *(rules(chance) for _ in range(32)))]
    linked = (*WRITTEN, *WITH_LINKS, *(rules(chance) for _ in range(24)))
    cases += [case(chance, lines, linked=True) for lines in linked]
    json.dump(cases, sys.stdout, indent=None, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
