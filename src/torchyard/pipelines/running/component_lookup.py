"""What stands at `component` of a step, or of a pipeline.

Owns: reading one that stands in the file, finding one of the workspace, refusing what is elsewhere.
Leaves: the document of a component to components/.
Always: an error is at the place of the component, or below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchyard.base import refs
from torchyard.base.db import Database
from torchyard.base.documents.checks import At
from torchyard.base.errors import DatabaseUnreachable, InvalidSpec, TorchyardError, moved
from torchyard.components import actions as components
from torchyard.components import documents as component_documents
from torchyard.pipelines.spec.nodes import Component, Resolve

_LONGEST_REFERENCE = 1000
_UNNAMED = "component"
_REGISTRY = "azureml://registries/"
_COMPONENT_ID = re.compile(
    r"(?:azureml:)?/*subscriptions/.+/workspaces/(?P<workspace>[^/]+)/components/(?P<name>[^/]+)"
    r"/(?:versions|labels)/(?P<version>[^/]+)\Z",
    re.IGNORECASE,
)


def in_workspace(db: Database, workspace: str) -> Resolve:
    """Finds components, each once, however many steps name it or hold its like."""
    found: dict[str, Component] = {}

    def resolved(written: Any, at: At) -> Component:
        key = key_of(written, at)
        if key not in found:
            found[key] = _component(db, workspace, written, at)
        return found[key]

    return resolved


def _component(db: Database, workspace: str, written: Any, at: At) -> Component:
    """What a step's `component` is.

    Raises:
        InvalidSpec: it is missing, archived, or no component.
    """
    try:
        if isinstance(written, Mapping):
            request = component_documents.read({"name": _UNNAMED, **written})
            return Component(request.definition)
        return _registered(db, workspace, written)
    except DatabaseUnreachable:
        raise
    except TorchyardError as error:
        raise moved(error, lambda inner: (*at, *inner)) from error


def _registered(db: Database, workspace: str, written: str) -> Component:
    if len(written) > _LONGEST_REFERENCE:
        raise InvalidSpec(
            f"`{written[:80]}…` is too long for the name of a component",
            "for example `component: azureml:train@latest`",
        )
    if written.startswith(_REGISTRY):
        raise InvalidSpec(
            f"`{written}` lies in a registry, which is not reached from here",
            "write a component that does the same, and name its file",
            code="not_served",
        )
    if by_id := _COMPONENT_ID.match(written):
        if by_id["workspace"].lower() != workspace.lower():
            raise InvalidSpec(
                f"`{written}` lies in workspace `{by_id['workspace']}`, and this is `{workspace}`",
                "register the component here, and write `azureml:<name>@latest`",
            )
        name, version = by_id["name"], by_id["version"]
    else:
        ref = refs.parse(written)
        name, version = ref.name, ref.version or ref.label or components.LATEST
    found = components.get(db, workspace, name, version)
    if found.archived:
        raise InvalidSpec(
            f"component `{found.name}:{found.version}` is archived",
            f"restore it: `yard component restore -n {found.name} -v {found.version}`, or name "
            "another version",
        )
    return Component(found.definition, f"{found.name}:{found.version}")


def key_of(value: Any, at: At) -> str:
    """The same for equal values.

    Raises:
        InvalidSpec: it is nested too deeply to be compared.
    """
    try:
        return repr(value)
    except RecursionError:
        raise InvalidSpec(
            "the step is nested too deeply", "use fewer than 200 levels", at=at
        ) from None
