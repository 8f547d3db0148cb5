"""`environment.inference_config`: where the server of an image answers.

Owns: its grammar; which of them say what holds here anyway.
Leaves: the rest of the environment to environments/, starting the server to running/.
Always: routes that an instance does not have are refused by name; ports have no effect, because
each instance gets a free one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import text
from torchyard.endpoints.spec import keys, settings

_AT = ("environment", "inference_config")
_BUILT = ("conda_file", "pip_requirements")
# Where azureml-inference-server-http answers.
_PATHS = {"liveness_route": "/", "readiness_route": "/", "scoring_route": "/score"}
NOTICE = (
    "the ports of `environment.inference_config` have no effect: each instance gets a free port"
)


def check(environment: Mapping[str, Any], has_code: bool) -> str:
    """What is to be said of it; empty where the environment has none.

    Raises:
        InvalidSpec: the image's own server would have to be started, or a route is another than
            that of the inference server.
    """
    if not environment.get("inference_config"):
        return ""
    body = keys.check(environment["inference_config"], keys.INFERENCE, _AT, "`inference_config`")
    if not has_code and not any(environment.get(key) for key in _BUILT):
        image = str(environment.get("image") or "")[:200]
        server = f"the server of image `{image}`" if image else "an image's own server"
        raise InvalidSpec(
            f"`environment.inference_config` is not served: {server} is not started here",
            "give `code_configuration` with a scoring script and an environment with its "
            "packages; MLflow models, ONNX files and exported programs need no script",
            code="not_served",
            at=_AT,
        )
    has_port = False
    for name, path in _PATHS.items():
        if body.get(name) is None:
            continue
        at = (*_AT, name)
        route = keys.check(body[name], keys.ROUTE, at, f"`{name}`")
        has_port |= bool(settings.bounded_integer(route, "port", at, 0, 1, 65_535))
        written = text(route, "path", at) or path
        if written != path:
            raise InvalidSpec(
                f"`{name}` has the path `{written[:80]}`, which is not served: scoring scripts are "
                f"served by azureml-inference-server-http, whose path is `{path}`",
                f"write `path: {path}`, or remove `inference_config`",
                code="not_served",
                at=(*at, "path"),
            )
    return NOTICE if has_port else ""
