"""Groups of routes by their modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from torchyard.app import route_groups

_START = """
import gc, os, sys
from pathlib import Path
from torchyard import server
from torchyard.app import application
from torchyard.executors.fake import FakeExecutor

home = Path(sys.argv[1])
parts = application.build(home, "http://127.0.0.1:1", os.environ, executor=FakeExecutor())
application.create_app(parts)
parts.services.db.close()
assert gc.isenabled()
print([module for module in sys.argv[2:] if module in sys.modules])
"""


def test_a_first_start_imports_no_group_and_no_alembic(tmp_path: Path) -> None:
    modules = {f"torchyard.{module}" for group in route_groups.groups() for module in group.modules}
    # The server itself needs this one's variables for jobs.
    modules.remove("torchyard.azureml.entry_routes")
    assert len(modules) > 15
    ran = subprocess.run(
        [sys.executable, "-c", _START, str(tmp_path), "alembic", *modules],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"


def test_a_module_of_a_group_has_its_routes() -> None:
    for group in route_groups.lazy_routes():
        assert group.router.routes
