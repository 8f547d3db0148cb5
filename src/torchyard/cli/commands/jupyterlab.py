"""`yard jupyterlab`: azureml-widgets shown by the JupyterLab of today.

Owns: the verb, finding the widget's front end among a Python's packages, the folder from which
JupyterLab loads it.
Leaves: how it is loaded to azure_widgets.js.
Always: the front end is what the package ships, byte for byte; nothing is fetched, no package is
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

NAME = "azureml_widgets"
_PLUGIN = "package/dist/plugin.js"
_ASKS_S = 60
# The parent package is looked at, not the widget: importing that takes seconds and IPython 8.
_ASKED = """\
import importlib.util, json, sysconfig
try:
    found = importlib.util.find_spec("azureml.widgets")
except ImportError:
    found = None
places = list(found.submodule_search_locations) if found else []
print(json.dumps({"data": sysconfig.get_path("data"), "widgets": places}))
"""


@dataclass(frozen=True)
class Place:
    """Where a Python keeps what belongs to Jupyter, and where azureml-widgets is, None without."""

    data: Path
    widgets: Path | None


@click.command("jupyterlab", cls=Verb)
@click.option(
    "--python",
    default="",
    metavar="FILE",
    help="The Python that has azureml-widgets. Default: the one that `python` is here.",
)
@click.option(
    "--user", is_flag=True, help="For every JupyterLab that you start, not only that Python's."
)
@click.option("--remove", is_flag=True, help="Take it away again.")
@accepts("--debug")
def jupyterlab(python: str, user: bool, remove: bool) -> int:
    """Have JupyterLab show Azure ML's `RunDetails(run).show()`.

    The package azureml-widgets brings a front end for JupyterLab 1 and 2, which later ones don't
    load. This puts it where they do, unchanged. Reload JupyterLab's page afterwards.

    \b
    Example: yard jupyterlab
             yard jupyterlab --python ~/azure/bin/python
    """
    place = _place(_python(python, os.environ))
    folder = _folder(place.data, user, os.environ)
    if remove:
        gone = uninstall(folder)
        click.echo(f"{folder} is gone" if gone else f"{folder} was not there")
        return 0
    version = install(front_end(place), folder)
    click.echo(f"JupyterLab shows azureml-widgets now (its front end {version}): {folder}")
    click.echo("Reload its page. The notebook's Python needs ipywidgets 7 and ipython before 9.")
    return 0


def front_end(place: Place) -> Path:
    """The archive in which the package ships its front end for JupyterLab.

    Raises:
        NotFound: the package is not there, or ships none.
    """
    hint = "name its Python: `yard jupyterlab --python FILE`; `pip install azureml-widgets` if none"
    if place.widgets is None:
        raise NotFound(f"the Python of `{place.data}` has no azureml-widgets", hint)
    found = sorted((place.widgets / "static" / "packages" / "labextension").glob(f"{NAME}-*.tgz"))
    if not found:
        raise NotFound(f"`{place.widgets}` has no front end for JupyterLab", hint)
    return found[-1]


def install(archive: Path, folder: Path) -> str:
    """Make the extension's folder anew; returns the front end's version.

    Raises:
        InvalidInput: the archive holds something else, or the folder can't be written.
    """
    version = archive.stem.removeprefix(f"{NAME}-")
    plugin = _plugin(archive)
    entry = Path(__file__).with_name("azure_widgets.js").read_bytes()
    # Browsers keep what they loaded under a name.
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
        # Last: without it JupyterLab sees nothing.
        (folder / "package.json").write_text(json.dumps(described, indent=2) + "\n")
    except OSError as error:
        raise InvalidInput(
            f"`{folder}` can't be written ({error.strerror})",
            "`yard jupyterlab --user` puts it into a folder of your own",
        ) from error
    return version


def uninstall(folder: Path) -> bool:
    """Whether there was something to take away."""
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    return True


def _plugin(archive: Path) -> bytes:
    try:
        with tarfile.open(archive) as opened:
            member = opened.extractfile(_PLUGIN)
            assert member is not None
            return member.read()
    except (OSError, KeyError, AssertionError, tarfile.TarError) as error:
        raise InvalidInput(
            f"`{archive}` holds no `{_PLUGIN}`",
            "this is written for azureml-widgets 1.62: `pip install azureml-widgets==1.62.0`",
        ) from error


def _python(given: str, environ: Mapping[str, str]) -> str:
    wanted = given or "python"
    found = shutil.which(os.path.expanduser(wanted), path=environ.get("PATH"))
    if found is None and not given:
        found = shutil.which("python3", path=environ.get("PATH"))
    if found is None:
        raise InvalidInput(f"there is no Python `{wanted}`", "see its spelling, and PATH")
    return found


def _place(python: str) -> Place:
    """
    Raises:
        InvalidInput: it is no Python that answers.
    """
    try:
        asked = subprocess.run(
            [python, "-c", _ASKED], capture_output=True, text=True, timeout=_ASKS_S, check=True
        )
        told = json.loads(asked.stdout)
        widgets = [Path(one) for one in told["widgets"]]
        return Place(Path(told["data"]), widgets[0] if widgets else None)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"`{python}` can't be asked where its packages are",
            "give the Python that has azureml-widgets: `--python FILE`",
        ) from error


def _folder(data: Path, user: bool, environ: Mapping[str, str]) -> Path:
    if not user:
        return data / "share" / "jupyter" / "labextensions" / NAME
    own = environ.get("JUPYTER_DATA_DIR")
    top = Path(own) if own else Path.home() / ".local" / "share" / "jupyter"
    return top / "labextensions" / NAME
