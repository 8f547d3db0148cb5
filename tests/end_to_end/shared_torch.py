"""The environments that many tests use, each built once for all of their homes.

Owns: a home of its own, where they are built, and putting them into the homes of the tests.
Leaves: building to the package of environments; cold builds by a job to the tests of them; the
versions to tests/locks.
Always: of several test processes one builds; a home has one as if its own server had built it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from end_to_end.yard_under_test import REPOSITORY, remove
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.environments.assembly import Environments

REQUIREMENTS = REPOSITORY / "examples/digits/requirements.txt"
# With `torchyard-train`, too.
RESUMABLE = REPOSITORY / "examples/resumable/requirements.txt"
# What the notebook of the widget's tests runs in.
WIDGETS = REPOSITORY / "tests/widgets/requirements.txt"
LOCKS = REPOSITORY / "tests/locks"
# These files stay as short as a user's; these are their versions wherever tests build them. As
# overrides, because a build gives uv constraints of its own, which replace those of the variable.
OVERRIDES = {file: LOCKS / "digits.txt" for file in (REQUIREMENTS, RESUMABLE)} | {
    WIDGETS: LOCKS / "widgets.txt"
}


@dataclass(frozen=True)
class SharedTorch:
    """`folder` is the home where they are built; it may outlive the session."""

    folder: Path

    def build(self, requirements: Path = REQUIREMENTS) -> Path:
        """Build one, if it is not there; the answer is its folder, which tests only read."""
        return self._build(requirements)[0]

    def lend(self, home: Path, requirements: Path = REQUIREMENTS) -> dict[str, str]:
        """Put one into the environments of a home; the answer is what a job file says of it."""
        built, may_link = self._build(requirements)
        target = home / "environments"
        if not (target / built.name).exists():
            target.mkdir(exist_ok=True)
            shutil.copytree(
                built, target / built.name, symlinks=True,
                copy_function=_linked if may_link else shutil.copy2,
            )  # fmt: skip
            for end in ("lock.txt", "mark", "compiled"):
                shutil.copy2(f"{built}.{end}", target)
        return {"pip_requirements": str(requirements)}

    def _build(self, requirements: Path) -> tuple[Path, bool]:
        """Return the folder, and whether its files may be hard links in other homes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # A kept one would have the tables of an earlier day; locks are beside the environments.
        records = tempfile.TemporaryDirectory(prefix="torchyard-shared-")
        db = Database(f"sqlite:///{records.name}/torchyard.db")
        try:
            db.upgrade()
            variables = dict(os.environ)
            if requirements in OVERRIDES:
                variables |= overriding(OVERRIDES[requirements])
            environments = Environments(self.folder, db, SystemClock(), variables)
            spec = environments.resolver.resolve({"pip_requirements": requirements.read_text()})
            built = environments.builds.run(spec)
            environments.compiler.finish(spec.hash)
            # Where a job can write to an environment, none may be two homes'.
            return built, not environments.folders.is_writable_by_jobs
        finally:
            db.close()
            records.cleanup()


def overriding(file: Path) -> dict[str, str]:
    """The variable by which uv takes a file's versions; uv splits it at spaces, a URL has none."""
    return {"UV_OVERRIDE": file.as_uri()}


def _linked(file: str, copy: str) -> str:
    try:
        os.link(file, copy, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, copy)  # on another disk
    return copy


@contextmanager
def kept_or_temporary() -> Iterator[SharedTorch]:
    """Kept where the variable says, for the next session and those beside this one."""
    kept_folder = os.environ.get("TORCHYARD_TEST_ENVIRONMENTS")
    folder = Path(kept_folder or tempfile.mkdtemp(prefix="torchyard-shared-"))
    yield SharedTorch(folder)
    if not kept_folder:
        remove(folder)
