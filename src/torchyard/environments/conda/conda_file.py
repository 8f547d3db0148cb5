"""Conda files, read without conda.

Owns: the conda file's grammar, the table of conda packages that PyPI has, too; what conda would add
to them.
Leaves: resolving conda packages to conda_packages.py, pip's lines to packages/requirements.py.
Always: what can't be honoured is an error that names it; what was changed is a notice.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By
from torchyard.base.documents.models import Document, declared, refused
from torchyard.base.errors import InvalidSpec
from torchyard.environments.packages import requirements
from torchyard.environments.packages.undeclared_limits import FOR_NUMPY_2, NUMPY_1

_SAME_NAME = """
    adlfs azure-identity bokeh click cloudpickle dask datasets dill distributed fastparquet
    flask fsspec gcsfs gensim h5py holidays imbalanced-learn ipykernel jinja2 joblib
    jupyter-server-proxy jupyterlab lightgbm lightning matplotlib mlflow mlflow-skinny networkx
    nltk notebook numba numpy onnx openpyxl optuna packaging pandas pandas-datareader pillow
    plotly protobuf psutil pyarrow pycocotools pyjwt pytest python-dateutil pytorch-lightning
    pytz pyyaml requests s3fs scikit-image scikit-learn scikit-learn-intelex scikit-optimize
    scipy seaborn sentencepiece setuptools shap six snakeviz sqlalchemy statsmodels sympy
    tabulate tensorboard tokenizers toolz torchaudio torchmetrics torchvision tqdm transformers
    ujson urllib3 wheel xgboost
"""
# Conda names of packages that PyPI has, too, with PyPI's names.
ALIKE: Mapping[str, str] = {
    **{name: name for name in _SAME_NAME.split()},
    "pytables": "tables",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
}

# Packages by which conda chooses a build of torch, and that builds from an index don't need.
DROPPED = ("cpuonly", "pytorch-cuda", "pytorch-mutex")

_LINE = re.compile(
    r"(?:(?P<channel>[\w.-]+(?:/[\w.-]+)*)::)?(?P<name>[\w.-]+)\s*(?P<version>[=<>!~ ].*|)",
    re.ASCII,
)
_CHANNEL = re.compile(r"[\w-][\w.-]*(?:/[\w.-]+)*|(?:https?|file|s3|gcs|oci)://\S+", re.ASCII)
_CLAUSE = re.compile(r"(?P<how>===?|~=|!=|<=|>=|=|<|>|)\s*(?P<version>[\w.+!-]+?)(?P<any>\.?\*)?")
_OF_PYTHON = re.compile(r"\d[\w.+!]{0,40}", re.ASCII)
# The last part of `=1.21.2=py38_0`.
_BUILD = re.compile(r"=?=?[\w.+!-]+?(?:\.?\*)?[= ]+(\w+)$", re.ASCII)
# Conda's pip depends on it. A file that pins pip is from a time when packages relied on
# `pkg_resources`, which later versions of setuptools lack.
_WITH_PIP = "setuptools<81"
_SETUPTOOLS = re.compile(r"setuptools\b(?!-)", re.IGNORECASE)
# Pythons of that time: packages for them rely on it, too.
_OLD_PYTHON = re.compile(r"3\.[5-9](?:\.\d+)?", re.ASCII)
# They import pkg_resources and rely on conda's pip to install it; azureml-mlflow by azureml-core.
_NEED_SETUPTOOLS = re.compile(
    r"azureml[-_]\w|mlflow(?:-skinny)?\s{0,9}(?:\[[^]]*\])?\s{0,9}={1,3}\s{0,9}1(?:\.|\Z)",
    re.IGNORECASE,
)

_NUMPY = re.compile(r"numpy\s*[=<>!~]", re.IGNORECASE)


@dataclass(frozen=True)
class Contents:
    """`python` is a version or a range, empty when the file names none.

    `packages` are conda's specs of packages that PyPI lacks; `channels` are their channels as the
    file names them, empty where there are no such packages.
    """

    python: str
    requirements: tuple[str, ...]
    notices: tuple[str, ...]
    packages: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


def _list(hint: str) -> Callable[[Any, At], list[Any]]:
    def read(value: Any, at: At) -> list[Any]:
        if value and not isinstance(value, list):
            raise InvalidSpec(f"`{at[-1]}` is not a list", hint, at=at)
        return value or []

    return read


def _channels(listed: Any, at: At) -> list[str]:
    channels = []
    for position, channel in enumerate(_list("write `channels: [conda-forge]`")(listed, at)):
        if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel.strip()):
            raise InvalidSpec(
                f"conda channel `{channel}` can't be read",
                "give its name, as `conda-forge`, or its URL",
                at=(*at, position),
            )
        channels.append(channel.strip().rstrip("/"))
    return list(dict.fromkeys(channels))


class CondaFile(Document):
    subject: ClassVar[str] = "`conda_file`"

    name: Any = declared(None, "the environment has its own", support="satisfied")
    channels: list[str] = declared([], "names or URLs", By(_channels))
    dependencies: list[Any] = declared(
        [], "`name=version`, or `{pip: [line, …]}`", By(_list("write `- python=3.11`"))
    )
    prefix: Any = declared(None, "has no effect", support="satisfied")
    variables: None = refused("set them in the job's `environment_variables`")


def read(document: Any, at: At) -> Contents:
    """Read a parsed conda file; `at` is its place in the document around it.

    Raises:
        InvalidSpec: a key that has no meaning here, or packages that need py-rattler where it
            is not installed.
    """
    file = CondaFile.read(document, at)
    dependencies = _Dependencies(file.channels)
    for position, entry in enumerate(file.dependencies):
        dependencies.take(entry, (*at, "dependencies", position))
    if file.prefix:
        dependencies.notices.append("`prefix` of the conda file has no effect")
    dependencies.complete()
    _check_extra(dependencies.packages)
    return Contents(
        dependencies.python,
        tuple(dependencies.lines),
        tuple(dependencies.notices),
        tuple(sorted(dependencies.packages)),
        tuple(dependencies.channels) if dependencies.packages else (),
    )


@dataclass
class _Dependencies:
    """The entries of `dependencies`, sorted by their source."""

    channels: list[str]
    python: str = ""
    lines: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    packages: dict[str, At] = field(default_factory=dict)
    has_pip: bool = False
    pins_pip: bool = False
    for_numpy_1: str = ""

    def take(self, entry: Any, at: At) -> None:
        if isinstance(entry, Mapping) and set(entry) == {"pip"}:
            self.lines += requirements.read(entry["pip"] or [], (*at, "pip"))
            self.has_pip = True  # conda installs it with Python
            return
        channel, name, version = _split(entry, at)
        build = _BUILD.match(version)
        if build and (name in ("python", "pip") or name in ALIKE):
            self.notices.append(
                f"build `{build[1]}` of conda package `{name}` is left out: only conda's channels "
                "have builds"
            )
        if name == "python":
            self.python = python_version(version, at)
        elif name in DROPPED:
            self.notices.append(
                f"conda package `{name}` is skipped: the platform decides the build of torch"
            )
        elif name in ALIKE:
            line = ALIKE[name] + _pip_version(version, at)
            self.lines.append(line)
            if name in FOR_NUMPY_2 and _is_before(version, FOR_NUMPY_2[name], at):
                self.for_numpy_1 = line
            self.notices.append(f"conda package `{name}` comes from PyPI as `{line}`")
        elif name != "pip":
            self.packages[_spec_text(channel, name, version)] = at
            if channel and channel not in self.channels:
                self.channels.append(channel)
        else:
            self.has_pip = True
            if version:
                self.lines.append("pip" + _pip_version(version, at))
                self.pins_pip = True

    def complete(self) -> None:
        """Add what conda would choose, where PyPI's metadata don't say it."""
        if self.for_numpy_1 and not any(_NUMPY.match(line) for line in self.lines):
            self.lines.append(NUMPY_1)
            self.notices.append(
                f"`{NUMPY_1}` is added, as conda does: `{self.for_numpy_1}` was built for NumPy 1"
            )
        is_old = self.pins_pip or bool(self.has_pip and _OLD_PYTHON.fullmatch(self.python))
        is_needed = is_old or any(_NEED_SETUPTOOLS.match(line) for line in self.lines)
        if is_needed and not any(_SETUPTOOLS.match(line) for line in self.lines):
            self.lines.append(_WITH_PIP)
            self.notices.append(f"`{_WITH_PIP}` is added, as conda's `pip` depends on setuptools")


def _check_extra(packages: Mapping[str, At]) -> None:
    if packages and importlib.util.find_spec("rattler") is None:
        names = ", ".join(f"`{words.rpartition('::')[2]}`" for words in packages)
        raise InvalidSpec(
            f"conda packages need py-rattler, which is not installed here: {names}",
            "`pip install 'torchyard[conda]'` on the server; or list packages that PyPI has, too, "
            "under `pip:`, by their names there",
            at=next(iter(packages.values())),
        )


def _spec_text(channel: str, name: str, version: str) -> str:
    """`channel::name version` as conda reads it, in one form for equal meanings."""
    version = ",".join(part.strip() for part in version.split(","))
    if version and version[0] not in "=<>!~":
        version = f" {version}"
    return f"{channel}::{name}{version}" if channel else f"{name}{version}"


def _split(entry: Any, at: At) -> tuple[str, str, str]:
    match = _LINE.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if match is None:
        raise InvalidSpec(
            f"conda dependency `{entry}` can't be read", "write it as `name=version`", at=at
        )
    return match["channel"] or "", match["name"].lower(), match["version"].strip()


def python_version(version: str, at: At) -> str:
    """`=3.11`, `3.11.*` and `==3.11` give `3.11`; `>=3.9,<3.12` stays a range."""
    clauses = [_clause(part, at) for part in version.split(",")] if version else []
    # uv gets it as a word of a command, where `--help` would be an option.
    strange = next((number for _, number, _ in clauses if not _OF_PYTHON.fullmatch(number)), "")
    if strange:
        raise InvalidSpec(
            f"`{strange[:80]}` is not a version of Python", "write it as `3.11`", at=at
        )
    if not clauses:
        return ""
    if len(clauses) == 1 and clauses[0][0] in ("", "=", "=="):
        return clauses[0][1]
    return ",".join(f"{how or '=='}{number}" for how, number, _ in clauses)


def _pip_version(version: str, at: At) -> str:
    parts = []
    for how, number, fuzzy in (_clause(part, at) for part in version.split(",") if part):
        # Conda's single `=`, and its bare version, mean every version with that prefix.
        if how in ("=", "") or (fuzzy and how == "=="):
            parts.append(f"=={number}.*")
        else:
            parts.append(f"{how}{number}{'.*' if fuzzy and how == '!=' else ''}")
    return ",".join(parts)


def _is_before(version: str, first: tuple[int, ...], at: At) -> bool:
    """Whether every version that the words allow is older than `first`."""
    for how, number, _ in (_clause(part, at) for part in version.split(",") if part):
        digits = [re.match(r"\d+", part) for part in number.split(".")]
        parts = tuple(int(each[0]) for each in digits if each is not None)
        if how in ("", "=", "==", "<="):
            # `=1` allows 1.99.
            is_older = parts < first[: len(parts)] if len(parts) < len(first) else parts < first
            if is_older:
                return True
        elif how == "<" and parts <= first:
            return True
    return False


def _clause(text: str, at: At) -> tuple[str, str, bool]:
    words = text.strip()
    # `=1.21.2=py38_0`: the last part names one of conda's builds, which PyPI does not have.
    words = re.sub(r"^(=?=?[\w.+!-]+?(?:\.?\*)?)[= ]+\w+$", r"\1", words)
    match = _CLAUSE.fullmatch(words)
    if match is None:
        raise InvalidSpec(
            f"version `{text.strip()}` can't be read",
            "write it as `=1.2`, `==1.2.3` or `>=1.2,<2`",
            at=at,
        )
    return match["how"], match["version"], bool(match["any"])
