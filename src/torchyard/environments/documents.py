"""An environment's document, and the same as a job's file has it.

Owns: the keys of both, which of them can be combined, reserved names.
Leaves: what their values mean to definition.py, conda files to conda/conda_file.py, Dockerfiles to
images/definition.py.
Always: names that begin with `AzureML` or `Microsoft` are reserved for curated environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torchyard.base.documents.checks import TEXT, At, By, Choice, Key
from torchyard.base.documents.models import Document, declared, keys, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import unknown_key
from torchyard.data.documents import AssetFile
from torchyard.environments.conda.conda_file import python_version
from torchyard.environments.images.definition import BuildFile
from torchyard.environments.names import catalogue, curated_environments

HINT = "give one of `image`, `image` with `conda_file`, `conda_file`, `pip_requirements` or `build`"
_CONDA_HINT = "that is a conda file's key: name the file, or write its content, under `conda_file`"
_CONTENT = ("image", "conda_file", "pip_requirements", "build")
_RESERVED = ("azureml", "microsoft")


def _image(value: Any, at: At) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidSpec("`image` is not a string", HINT, at=at)
    return value


def _python(value: Any, at: At) -> str:
    version = value.strip() if isinstance(value, str) else ""
    if not version:
        raise InvalidSpec("`python` is not a version", 'write `python: "3.12"`', at=at)
    return python_version(version, at)


class Content(Document):
    """What decides an environment's content."""

    image: str = declared(
        "", "images that mean plain Python take no engine; others do", By(_image, else_=TEXT)
    )
    conda_file: Any = declared(None, "Python, pip and conda packages; a path or the content")
    pip_requirements: Any = declared(None, "torchyard's own: a path, or the lines themselves")
    python: str = declared(
        "", 'a version beside `pip_requirements`, such as `"3.12"`', By(_python, else_=TEXT)
    )
    build: BuildFile | None = declared(
        None, "built by podman or docker on the server's machine", By(BuildFile.read, of=BuildFile)
    )
    os_type: str = declared(
        "linux", check=Choice(linux=Key(), windows=Key("remove it: nodes run Linux", "refused"))
    )
    inference_config: Any = declared(None, "for endpoints; a job needs none", support="satisfied")
    datastore: Any = declared(None, "definitions travel with the job", support="satisfied")

    @rule(*_CONTENT)
    def _there(self) -> None:
        if not self.model_fields_set.intersection(_CONTENT):
            raise InvalidSpec("`environment` names no content", HINT)

    @rule("build", "image", "pip_requirements")
    def _beside_build(self) -> None:
        # As in Azure, a conda file goes into the image that is built, as into one that is named.
        beside = [key for key in ("image", "pip_requirements") if key in self.model_fields_set]
        if "build" in self.model_fields_set and beside:
            raise InvalidSpec(
                f"`build` and `{beside[0]}` can't be combined",
                f"write the content of `{beside[0]}` in the Dockerfile",
                at=(beside[0],),
            )

    @rule("python", "pip_requirements")
    def _beside_python(self) -> None:
        if self.python and "pip_requirements" not in self.model_fields_set:
            raise InvalidSpec(
                "`python` goes with `pip_requirements` alone",
                "write `- python=3.12` among the `dependencies` of the conda file, or name an "
                "image with that Python",
                at=("python",),
            )

    @rule("conda_file", "pip_requirements")
    def _beside_conda(self) -> None:
        if self.model_fields_set >= {"conda_file", "pip_requirements"}:
            raise InvalidSpec(
                "`conda_file` and `pip_requirements` can't be combined",
                "move the requirements under `pip:` in the conda file",
                at=("pip_requirements",),
            )

    @classmethod
    def unknown_key(cls, key: str, at: At, body: Mapping[str, Any]) -> InvalidSpec:
        hint = _CONDA_HINT if key in ("dependencies", "channels", "prefix") else HINT
        return unknown_key(key, list(keys(cls)), at, inside="environment", otherwise=hint)


_BY_CONTENT = Key("an environment is known by its content", "satisfied")
_ONLY_SAID = Key("description only", "satisfied")


class EnvironmentKeys(Content):
    """As a job's file has it."""

    name: Any = declared(None, _BY_CONTENT)
    version: Any = declared(None, _BY_CONTENT)
    description: Any = declared(None, _ONLY_SAID)
    tags: Any = declared(None, _ONLY_SAID)
    properties: Any = declared(None, _ONLY_SAID)
    schema_: Any = declared(None, "for editors; not read", support="satisfied", alias="$schema")


class EnvironmentFile(Content, AssetFile):
    subject: ClassVar[str] = "the environment's document"
    noun: ClassVar[str] = "an environment"
    thing: ClassVar[str] = "environment"

    @rule("name")
    def _reserved(self) -> None:
        if isinstance(self.name, str):
            refuse_reserved(self.name)


def refuse_reserved(name: str) -> None:
    """
    Raises:
        InvalidSpec: the name is a curated environment's, or could be one's.
    """
    if name.lower().startswith(_RESERVED):
        raise InvalidSpec(
            f"`{name}` begins with `{name[:7] if name.lower().startswith('azureml') else name[:9]}`"
            ", which is reserved for curated environments",
            "choose another name",
            code="reserved_name",
            at=["name"],
        )
    if curated_environments.find_by_name(catalogue.bare(name)) is not None:
        raise InvalidSpec(
            f"`{name}` is a curated environment's name",
            "choose another name; to start from it, `yard environment clone`",
            code="reserved_name",
            at=["name"],
        )
