from __future__ import annotations

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.base.refs import Ref, parse


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("name", Ref("name")),
        ("azureml:name:3", Ref("name", version="3")),
        ("azureml:AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu@latest",
         Ref("AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu", label="latest")),
        ("name:1", Ref("name", version="1")),
        ("azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
         Ref("sklearn-1.5", label="latest", registry="azureml")),
        ("azureml://registries/r/models/m/versions/7", Ref("m", version="7", registry="r")),
    ],
)  # fmt: skip
def test_reads_every_form(text: str, ref: Ref) -> None:
    assert parse(text) == ref


@pytest.mark.parametrize("text", ["", "azureml:", "a:1@latest", "../x", "a b", "azureml://x/y"])
def test_refuses_what_is_none(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse(text)
