"""Build the documentation site into `.docs-site/site`; `make docs-site` runs this.

    python tools/docs_site.py

Owns: which pages of the repository are on the site and where, links between them, that each page is
in the navigation, that no page loads anything from another host.
Leaves: navigation and look to zensical.toml; HTML, search and anchors to Zensical; the pages that
are made of the code to commands_page.py and http_api_page.py.
Always: a link that leads nowhere fails the build. A link to a file that is not on the site leads to
the repository on the web.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tomllib

import commands_page
import http_api_page

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / ".docs-site"
PAGES = BUILD / "pages"
SITE = BUILD / "site"
# A path of the repository, and where it is on the site.
OTHERS = {
    "docs/README.md": "all-pages.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "SECURITY.md": "contributing/security.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
    "ui/public/favicon.svg": "assets/favicon.svg",
}
MADE = {
    "reference/commands.md": commands_page.text,
    "reference/http-api.md": http_api_page.text,
}
# Columns that a page leaves to its text: it is alone in its tab, or has a wide table.
HIDDEN = {
    "index.md": "[navigation, toc]",
    "tutorial.md": "[navigation]",
    "comparison.md": "[navigation, toc]",
}
# Its index leads to them.
UNLISTED = "decisions/"
_LINK = re.compile(
    r"(?P<start>!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()(?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)"
)
_COLOR = re.compile(r"\x1b\[[\d;]*m")
_ITEM = re.compile(r"\d\. ")
_FENCE = re.compile(r"^( *)```.*?^\1``` *$", re.MULTILINE | re.DOTALL)
# What a browser fetches by itself. A link that a reader follows is none of it.
_LOAD = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b[^>]*?\bhref=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|(?:@import\s+|url\()\s*["']?(?:https?:)?//[^"')\s]+"""
)
_NAMED_FILE = re.compile(r"^<!-- (\S+) -->\n```(\w+)$", re.MULTILINE)


class SiteError(Exception):
    """What is wrong with the pages, in one line."""


def places() -> dict[Path, str]:
    """Each file of the repository that is on the site, with its path there."""
    found = {ROOT / source: target for source, target in OTHERS.items()}
    for file in sorted((ROOT / "docs").rglob("*")):
        if file.is_file() and file not in found:
            path = file.relative_to(ROOT / "docs").as_posix()
            found[file] = re.sub(r"(^|/)README\.md$", r"\1index.md", path)
    return found


def assemble() -> None:
    """Write what Zensical reads."""
    shutil.rmtree(PAGES, ignore_errors=True)
    on_site = places()
    for source, path in on_site.items():
        target = PAGES / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(page(source, on_site), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    for path, text in MADE.items():
        (PAGES / path).write_text(text(), encoding="utf-8")


def page(source: Path, on_site: dict[Path, str]) -> str:
    """The page as the site has it: links to where things are there, files with their names."""
    text = source.read_text(encoding="utf-8")
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [relinked(text[end : fence.start()], source, on_site), fence[0]]
        end = fence.end()
    text = "".join([*parts, relinked(text[end:], source, on_site)])
    text = deepened(text)
    hidden = HIDDEN.get(on_site[source])
    head = f"---\nhide: {hidden}\n---\n\n" if hidden else ""
    return head + _NAMED_FILE.sub(r'```\2 title="\1"', text)


def deepened(text: str) -> str:
    """Indent what continues a numbered item by four spaces; for GitHub three are enough."""
    lines, is_in_item = [], False
    for line in text.splitlines(keepends=True):
        if _ITEM.match(line):
            is_in_item = True
        elif line.strip() and not line.startswith("   "):
            is_in_item = False
        elif is_in_item and line.strip():
            line = f" {line}"
        lines.append(line)
    return "".join(lines)


def relinked(text: str, source: Path, on_site: dict[Path, str]) -> str:
    here = Path(on_site[source]).parent

    def replaced(link: re.Match[str]) -> str:
        path, anchor = link["path"], link["anchor"] or ""
        if not path or urlsplit(path).scheme:
            return link[0]
        target = (source.parent / path).resolve()
        if target.is_dir() and target / "README.md" in on_site:
            target /= "README.md"
        if target in on_site:
            path = os.path.relpath(on_site[target], here)
        elif not target.exists():
            raise SiteError(f"{source.relative_to(ROOT)}: `{path}` does not exist")
        else:
            kind = "tree" if target.is_dir() else "blob"
            path = f"{repository()}/{kind}/main/{target.relative_to(ROOT).as_posix()}"
        return f"{link['start']}{path}{anchor})"

    return _LINK.sub(replaced, text)


def repository() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    url: str = project["urls"]["Homepage"]
    return url


def check_navigation() -> None:
    """Each page is in the navigation once, and each of its entries is a page."""
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    listed = list(_entries(navigation))
    pages = {file.relative_to(PAGES).as_posix() for file in PAGES.rglob("*.md")}
    missing = {page for page in pages - set(listed) if not page.startswith(UNLISTED)}
    faults = {
        "is not in the navigation of zensical.toml": missing,
        "is in the navigation of zensical.toml, and no page": set(listed) - pages,
        "is in the navigation of zensical.toml twice": {p for p in listed if listed.count(p) > 1},
    }
    for fault, names in faults.items():
        if names:
            raise SiteError(f"`{min(names)}` {fault}")


def _entries(navigation: list[Any]) -> Iterator[str]:
    for entry in navigation:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from _entries(target)


def foreign_loads(site: Path) -> list[str]:
    """What pages and styles fetch from other hosts, each with its file."""
    return [
        f"{file.relative_to(site)}: {load}"
        for file in sorted(site.rglob("*"))
        if file.suffix in (".html", ".css", ".svg")
        for load in _LOAD.findall(file.read_text(encoding="utf-8"))
    ]


def render(root: Path) -> None:
    """Let Zensical build what is in `root`, which has its configuration.

    Raises:
        SiteError: a link or an anchor leads nowhere, or another of its warnings.
    """
    ended = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        # Its last lines are a traceback that says no more than the exit code.
        report = _COLOR.sub("", ended.stderr.partition("Traceback")[0])
        raise SiteError(f"Zensical did not build the site\n{ended.stdout}{report}")


def build() -> None:
    """Write the whole site, in place of the one before.

    Raises:
        SiteError: what is wrong with it.
    """
    assemble()
    check_navigation()
    shutil.rmtree(SITE, ignore_errors=True)
    render(ROOT)
    if loads := foreign_loads(SITE):
        raise SiteError("a page loads from another host: " + "; ".join(loads[:5]))


def main() -> int:
    try:
        build()
    except SiteError as error:
        print(f"error: {error}", file=sys.stderr)
        print("hint: correct it in docs/ or zensical.toml: .docs-site is a copy", file=sys.stderr)
        return 2
    print(f"{len(list(SITE.rglob('*.html')))} pages: {SITE.relative_to(ROOT) / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
