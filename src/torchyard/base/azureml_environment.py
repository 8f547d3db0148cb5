"""An environment in the JSON of azureml-core's class.

Owns: its keys; the class's reader takes what is absent for a default.
Leaves: what goes into them to those who write one: the server's service, the client's folders.

Source: azureml-core 1.61, azureml/core/environment.py.
"""

from __future__ import annotations

from typing import Any


def document(name: str, version: str, image: str | None, is_managed: bool) -> dict[str, Any]:
    """Everything but the conda dependencies.

    Args:
        is_managed: its Python is the image's own, with nothing put into it.
    """
    return {
        "name": name,
        "version": version,
        "environmentVariables": {},
        "python": {
            "userManagedDependencies": is_managed,
            "interpreterPath": "python",
            "condaDependenciesFile": None,
            "baseCondaEnvironment": None,
        },
        "docker": {
            "enabled": False,
            "baseImage": image,
            "baseDockerfile": None,
            "buildContext": None,
            "sharedVolumes": True,
            "shmSize": "2g",
            "arguments": [],
            "baseImageRegistry": {
                "address": None,
                "username": None,
                "password": None,
                "registryIdentity": None,
            },
            "platform": {"os": "Linux", "architecture": "amd64"},
        },
        "spark": {"repositories": [], "packages": [], "precachePackages": True},
        "databricks": {
            "mavenLibraries": [],
            "pypiLibraries": [],
            "rcranLibraries": [],
            "jarLibraries": [],
            "eggLibraries": [],
        },
        "r": None,
        "inferencingStackVersion": None,
        "assetId": None,
    }
