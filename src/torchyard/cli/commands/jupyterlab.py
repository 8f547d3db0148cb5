"""`yard jupyterlab`: install azureml-widgets into current versions of JupyterLab.

Owns: the verb, finding the widget's front end in a Python environment, the folder from which
JupyterLab loads it.
Leaves: loading it to azure_widgets.js.
Always: the front end is byte for byte what the package ships; nothing is downloaded, no package is
changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import accepts
from torchyard.shared.archives import BoundedTarInfo

NAME = "azureml_widgets"
_PLUGIN = "package/dist/plugin.js"
_TIMEOUT_S = 60
# Finding the package is enough: importing it takes seconds and needs IPython 8.
_PROBE = """\
import importlib.util, json, sysconfig
try:
    found = importlib.util.find_spec("azureml.widgets")
except ImportError:
    found = None
places = list(found.submodule_search_locations) if found else []
print(json.dumps({"data": sysconfig.get_path("data"), "widgets": places}))
"""


@dataclass(frozen=True)
class JupyterPython:
    """A Python's data folder for Jupyter, and the folder of azureml-widgets or None."""

    data: Path
    widgets: Path | None


@click.command("jupyterlab", cls=Verb)
@click.option(
    "--python",
    default="",
    metavar="FILE",
    help="Python with azureml-widgets. Default: `python` on PATH.",
)
@click.option(
    "--user", is_flag=True, help="Install for all your JupyterLabs, not only that Python's."
)
@click.option("--remove", is_flag=True, help="Uninstall it.")
@accepts("--debug")
def jupyterlab(python: str, user: bool, remove: bool) -> int:
    """Install Azure ML's notebook widget, `RunDetails(run).show()`, into JupyterLab.

    The package azureml-widgets ships a front end for JupyterLab 1 and 2, which later versions don't
    load. This command installs it, unchanged, where they do. Reload JupyterLab's page afterwards.

    \b
    Example: yard jupyterlab
             yard jupyterlab --python ~/azure/bin/python
    """
    target = _probe_python(_python(python, os.environ))
    folder = _folder(target.data, user, os.environ)
    if remove:
        is_removed = uninstall(folder)
        click.echo(f"Removed {folder}" if is_removed else f"{folder} does not exist")
        return 0
    version = install(front_end(target), folder)
    click.echo(f"Installed the front end of azureml-widgets {version}: {folder}")
    click.echo(
        "Reload JupyterLab's page. The notebook's Python needs ipywidgets 7 and ipython before 9."
    )
    return 0


def front_end(target: JupyterPython) -> Path:
    """The archive with the package's front end for JupyterLab.

    Raises:
        NotFound: the package is not installed, or ships no front end.
    """
    hint = "`pip install azureml-widgets`, or name the Python that has it with `--python FILE`"
    if target.widgets is None:
        raise NotFound(f"the Python of `{target.data}` has no azureml-widgets", hint)
    archives = sorted(
        (target.widgets / "static" / "packages" / "labextension").glob(f"{NAME}-*.tgz")
    )
    if not archives:
        raise NotFound(f"`{target.widgets}` has no front end for JupyterLab", hint)
    return archives[-1]


def install(archive: Path, folder: Path) -> str:
    """Create the extension's folder again and return the front end's version.

    Raises:
        InvalidInput: the archive has no front end, or the folder can't be written.
    """
    version = archive.stem.removeprefix(f"{NAME}-")
    plugin = _plugin(archive)
    entry = Path(__file__).with_name("azure_widgets.js").read_bytes()
    # A new name for new content: browsers cache by name.
    mark = hashlib.sha256(entry + plugin).hexdigest()[:16]
    loaded = {"load": f"static/entry.{mark}.js", "extension": "./extension"}
    described = {
        "name": NAME,
        "version": version,
        "description": "Azure ML's notebook widgets, by `yard jupyterlab`",
        "jupyterlab": {"extension": True, "_build": loaded},
    }
    try:
        uninstall(folder)
        (folder / "static").mkdir(parents=True)
        (folder / "static" / "plugin.js").write_bytes(plugin)
        (folder / "static" / f"entry.{mark}.js").write_bytes(entry)
        # Last: JupyterLab ignores the folder without it.
        (folder / "package.json").write_text(json.dumps(described, indent=2) + "\n")
    except OSError as error:
        raise InvalidInput(
            f"`{folder}` can't be written ({error.strerror})",
            "`yard jupyterlab --user` installs it into your home folder",
        ) from error
    return version


def uninstall(folder: Path) -> bool:
    """Remove the extension's folder; returns whether it existed."""
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    return True


def _plugin(archive: Path) -> bytes:
    try:
        with tarfile.open(archive, tarinfo=BoundedTarInfo) as opened:
            member = opened.extractfile(_PLUGIN)
            assert member is not None
            return member.read()
    except (OSError, KeyError, AssertionError, tarfile.TarError) as error:
        raise InvalidInput(
            f"`{archive}` contains no `{_PLUGIN}`",
            "azureml-widgets 1.62 is supported: `pip install azureml-widgets==1.62.0`",
        ) from error


def _python(name: str, environ: Mapping[str, str]) -> str:
    program_name = name or "python"
    program = shutil.which(os.path.expanduser(program_name), path=environ.get("PATH"))
    if program is None and not name:
        program = shutil.which("python3", path=environ.get("PATH"))
    if program is None:
        raise InvalidInput(
            f"the Python `{program_name}` was not found", "check its spelling and PATH"
        )
    return program


def _probe_python(python: str) -> JupyterPython:
    """
    Raises:
        InvalidInput: the program does not answer as a Python does.
    """
    try:
        completed = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
        paths = json.loads(completed.stdout)
        widgets = [Path(path) for path in paths["widgets"]]
        return JupyterPython(Path(paths["data"]), widgets[0] if widgets else None)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"`{python}` does not report where its packages are",
            "name the Python that has azureml-widgets with `--python FILE`",
        ) from error


def _folder(data: Path, user: bool, environ: Mapping[str, str]) -> Path:
    if not user:
        return data / "share" / "jupyter" / "labextensions" / NAME
    data_dir = environ.get("JUPYTER_DATA_DIR")
    top = Path(data_dir) if data_dir else Path.home() / ".local" / "share" / "jupyter"
    return top / "labextensions" / NAME
