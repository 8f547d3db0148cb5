"""`environment.inference_config`: where the server of an image answers.

Owns: its keys; which of them say what holds here anyway.
Leaves: the rest of the environment to environments/, starting the server to running/.
Always: routes that an instance does not have are refused by name; ports have no effect, because
each instance gets a free one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.documents.checks import Text, Whole
from torchyard.base.documents.models import Document, declared, rule
from torchyard.base.errors import InvalidSpec

_AT = ("environment", "inference_config")
_BUILT = ("conda_file", "pip_requirements")
# Where azureml-inference-server-http answers.
_PATHS = {"liveness_route": "/", "readiness_route": "/", "scoring_route": "/score"}
NOTICE = (
    "the ports of `environment.inference_config` have no effect: each instance gets a free port"
)


class Route(Document):
    path: str = declared(
        "", "that of azureml-inference-server-http; others are refused", Text(), support="satisfied"
    )
    port: int = declared(
        0, "has no effect: each instance gets a free one", Whole(1, 65_535), support="satisfied"
    )


class InferenceConfig(Document):
    liveness_route: Route | None = declared(None, "`{path: /}`", support="satisfied")
    readiness_route: Route | None = declared(None, "`{path: /}`", support="satisfied")
    scoring_route: Route | None = declared(None, "`{path: /score}`", support="satisfied")

    @property
    def has_port(self) -> bool:
        return any(route.port for _, route in self if route is not None)

    @rule(*_PATHS)
    def _paths(self) -> None:
        for name, route in self:
            if route is not None and route.path not in ("", _PATHS[name]):
                raise InvalidSpec(
                    f"`{name}` has the path `{route.path[:80]}`, which is not served: scoring "
                    "scripts are served by azureml-inference-server-http, whose path is "
                    f"`{_PATHS[name]}`",
                    f"write `path: {_PATHS[name]}`, or remove `inference_config`",
                    code="not_served",
                    at=(name, "path"),
                )


def refuse_other_servers(environment: Any, has_code: bool) -> None:
    """
    Args:
        environment: as the file has it.

    Raises:
        InvalidSpec: the image's own server would have to be started.
    """
    if not isinstance(environment, Mapping) or not environment.get("inference_config"):
        return
    if has_code or any(environment.get(key) for key in _BUILT):
        return
    image = str(environment.get("image") or "")[:200]
    server = f"the server of image `{image}`" if image else "an image's own server"
    raise InvalidSpec(
        f"`environment.inference_config` is not served: {server} is not started here",
        "give `code_configuration` with a scoring script and an environment with its packages; "
        "MLflow models, ONNX files and exported programs need no script",
        code="not_served",
        at=_AT,
    )
