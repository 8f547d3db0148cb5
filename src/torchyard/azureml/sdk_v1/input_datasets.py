"""The datasets that a run of SDK v1 reads, in the form of its `inputDatasets`.

Owns: what a run keeps of the datasets in its configuration, the JSON of its details.
Leaves: what a dataset is to datasets.py, where an input lies to the job.
Always: every input that is a dataset is listed, with the id that the client's `Dataset` has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.sdk_v1 import run_configs
from torchyard.azureml.sdk_v1.datasets import Datasets

_PROPERTY = "azureml.v1.input_datasets"
_MECHANISMS = {"mount": "Mount", "download": "Download", "direct": "Direct", "hdfs": "Hdfs"}


def properties_of(
    datasets: Datasets, workspace: str, configuration: Mapping[str, Any]
) -> dict[str, str]:
    """The property that keeps the datasets of a configuration; none for a run without."""
    inputs = [
        _input(datasets, workspace, name, document)
        for name, document in run_configs.objects_at(configuration, "data").items()
    ]
    return {_PROPERTY: json.dumps(inputs)} if inputs else {}


def of_run(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """`inputDatasets` of a run with these properties."""
    try:
        inputs = json.loads(properties.get(_PROPERTY) or "[]")
    except ValueError:
        return []  # the user has a property of that name
    return [
        {
            "identifier": {"savedId": input.get("id")},
            "consumptionType": "RunInput",
            "inputDetails": {
                "inputName": input.get("name"),
                "mechanism": input.get("mechanism"),
                "pathOnCompute": None,
            },
        }
        for input in (inputs if isinstance(inputs, list) else [])
        if isinstance(input, Mapping)
    ]


def _input(
    datasets: Datasets, workspace: str, name: str, document: Mapping[str, Any]
) -> dict[str, str | None]:
    location = run_configs.object_at(document, "dataLocation")
    reference = run_configs.object_at(location, "dataset")
    return {
        "name": name,
        "id": datasets.id_of(workspace, reference),
        "mechanism": _MECHANISMS.get(str(document.get("mechanism") or "mount").lower()),
    }
