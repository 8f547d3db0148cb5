"""What `online-deployment` and `batch-deployment` have in common: sending a file, and changes.

Owns: which deployment a file and its options name, when a file replaces all that was there.
Leaves: the options of each verb to endpoints/ and batch_endpoints/, requests to client/.
Always: an error begins with its place in the file, once; notices are printed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.cli.parsing.options import warn

if TYPE_CHECKING:
    from torchyard.cli.parsing.documents import Document
    from torchyard.client.endpoints.verbs import AnyDeployment, Deployment, Deployments


def create(deployments: Deployments[AnyDeployment], document: Document) -> AnyDeployment:
    """Upload what the document names and create the deployment; say what has no effect."""
    from torchyard.cli.terminal import progress

    try:
        with progress.uploading() as sent:
            deployment = deployments.create(document.value, document.folder, sent)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print_notices(deployment)
    return deployment


def update(
    deployments: Deployments[AnyDeployment],
    document: Document,
    endpoint: str | None,
    name: str | None,
) -> AnyDeployment:
    """Change single keys; a file is the whole deployment, as for az.

    Args:
        endpoint: as an option named it, which wins over the document. So does `name`.
    """
    changes = {key: value for key, value in document.value.items() if key != "$schema"}
    in_file = changes.pop("endpoint_name", None), changes.pop("name", None)
    endpoint, name = endpoint or in_file[0], name or in_file[1]
    if not isinstance(name, str) or not isinstance(endpoint, str):
        raise InvalidInput(
            "the deployment's name or its endpoint's is missing",
            "give them with `--name` and `--endpoint-name`",
        )
    if not changes:
        raise InvalidInput("no changes were given", "use `--set key=value`")
    if document.name:
        deployments.get(endpoint, name)
        document.fill({"endpoint_name": endpoint, "name": name})
        return create(deployments, document)
    try:
        deployment = deployments.update(endpoint, name, changes, document.folder)
    except TorchyardError as error:
        raise document.locate(error) from error.__cause__
    _print_notices(deployment)
    return deployment


def _print_notices(deployment: Deployment) -> None:
    for notice in deployment.notices:
        warn(notice)
