"""Another version of torchyard, played by a copy of this one's sources.

Owns: its number, its schema and the migration to it; the command that runs it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torchyard
from base import next_migration
from end_to_end.yard_under_test import Yard
from torchyard.base.db import SCHEMA_VERSION

SOURCES = Path(torchyard.__file__).parent
NEXT = next_migration.revision


@dataclass(frozen=True)
class OtherYard(Yard):
    """The same home by another version's command."""

    sources: Path = field(default=SOURCES.parent)

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, "PYTHONPATH": str(self.sources)}


def version_of(yard: Yard, folder: Path, version: str, schema: str) -> OtherYard:
    """Another version of torchyard: its number, its schema, and the migration to it."""
    package = folder / version / "torchyard"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
    _replace(package / "__init__.py", f'"{torchyard.__version__}"', f'"{version}"')
    if schema != SCHEMA_VERSION:
        _replace(package / "base" / "db.py", f'"{SCHEMA_VERSION}"', f'"{schema}"')
        step = package / "base" / "migrations" / "versions" / f"{schema}_next.py"
        text = Path(str(next_migration.__file__)).read_text()
        text = text.replace("from torchyard.base.db import SCHEMA_VERSION\n", "")
        text = text.replace('f"{int(SCHEMA_VERSION) + 1:04}"', f'"{schema}"')
        step.write_text(text.replace("= SCHEMA_VERSION", f'= "{SCHEMA_VERSION}"'))
    return OtherYard(yard.home, yard.database, package.parent)


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))
