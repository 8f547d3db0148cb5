"""What all tools' arguments have in common.

Owns: the base of their models, their JSON Schema, errors about wrong ones.
Always: an argument that a tool does not have is refused, never ignored.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from torchyard.base.errors import InvalidInput, did_you_mean


class Arguments(BaseModel):
    """The base of the models; a field's description is what agents read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _WithoutTitles(GenerateJsonSchema):
    """Titles say what the names do, and every agent would read them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_of(model: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    schema = model.model_json_schema(schema_generator=_WithoutTitles)
    del schema["title"]
    schema.pop("description", None)
    return schema


def read(tool: str, model: type[Arguments], values: dict[str, Any]) -> Arguments:
    """The arguments of a call.

    Raises:
        InvalidInput: one is missing, wrong or not the tool's.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        raise InvalidInput(
            f"`{tool}` has no argument `{path}`", did_you_mean(path, list(model.model_fields))
        )
    if first["type"] == "missing":
        raise InvalidInput(f"`{tool}` needs the argument `{path}`", _meaning(model, path))
    raise InvalidInput(f"argument `{path}` of `{tool}`: {first['msg']}", _meaning(model, path))


def _meaning(model: type[Arguments], path: str) -> str:
    field: FieldInfo | None = model.model_fields.get(path.partition(".")[0])
    return (field.description or "") if field is not None else ""
