"""Warn of folders that hold more modules than a reader can keep in mind."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "torchyard"
MANY = 25

for folder in sorted({path.parent for path in SOURCE.rglob("*.py")}):
    count = sum(path.name != "__init__.py" for path in folder.glob("*.py"))
    if count > MANY and folder.name != "versions":  # one file a migration
        print(f"warning: {folder.relative_to(SOURCE)} holds {count} modules; give nouns folders")
