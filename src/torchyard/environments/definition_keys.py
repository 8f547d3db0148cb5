"""The keys of an environment's definition, in a job's file and in a file of its own.

Owns: which there are and what they do.
Leaves: reading their values to definition.py.
"""

from __future__ import annotations

from typing import Annotated, Any

from torchyard.base.documents.models import Choice, Document, Key

_BY_CONTENT = Key("an environment is known by its content", "satisfied")
_ONLY_SAID = Key("description only", "satisfied")


class BuildKeys(Document):
    path: Annotated[Any, Key("the build context: a folder")] = None
    dockerfile_path: Annotated[Any, Key("`Dockerfile` when absent")] = None


class EnvironmentKeys(Document):
    image: Annotated[Any, Key("images that mean plain Python take no engine; others do")] = None
    conda_file: Annotated[Any, Key("Python, pip and conda packages; a path or the content")] = None
    pip_requirements: Annotated[Any, Key("torchyard's own: a path, or the lines themselves")] = None
    python: Annotated[Any, Key('a version beside `pip_requirements`, such as `"3.12"`')] = None
    build: Annotated[BuildKeys | None, Key("built by podman or docker on the server's machine")] = (
        None
    )
    os_type: Annotated[
        str, Choice(linux=Key(), windows=Key("remove it: nodes run Linux", "refused"))
    ] = "linux"
    name: Annotated[Any, _BY_CONTENT] = None
    version: Annotated[Any, _BY_CONTENT] = None
    description: Annotated[Any, _ONLY_SAID] = None
    tags: Annotated[Any, _ONLY_SAID] = None
    properties: Annotated[Any, _ONLY_SAID] = None
    inference_config: Annotated[Any, Key("for endpoints; a job needs none", "satisfied")] = None
    datastore: Annotated[Any, Key("definitions travel with the job", "satisfied")] = None
