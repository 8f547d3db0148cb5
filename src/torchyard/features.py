"""What torchyard consists of.

Owns: which packages register something, in the order of lists that people see.
Leaves: what each registers to the module `feature` of its package.
Always: a package is one word of the list.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.base.feature import Feature

PACKAGES = (
    *("mlflow", "jobs", "compute", "environments", "data", "components", "models"),
    *("endpoints", "batch_endpoints", "sweeps", "pipelines", "releases", "lineage", "instances"),
    *("interactive", "web", "sign_in", "workspaces", "servers", "azureml", "backups"),
)


def features() -> Sequence[Feature]:
    from torchyard.base.feature import load

    return [load(f"{package}.feature:FEATURE") for package in PACKAGES]
