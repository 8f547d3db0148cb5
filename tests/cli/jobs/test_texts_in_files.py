"""What Azure ML's schema calls a string reaches the server as it is written in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.cli.parsing import documents

WRITTEN = ["1.10", "1e3", "0x10", "0123", "yes", "off", "2024-01-02", "1_000", "22:30", "+1"]


def read(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "job.yml"
    file.write_text(text)
    return documents.read(file).value


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("mapping", ["tags", "environment_variables", "properties"])
def test_values_of_text_mappings_stay_as_written(
    tmp_path: Path, mapping: str, written: str
) -> None:
    assert read(tmp_path, f"{mapping}: {{a: {written}}}") == {mapping: {"a": written}}
    assert (
        read(tmp_path, f"trial: {{{mapping}: {{a: {written}}}}}")["trial"][mapping]["a"] == written
    )


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize(
    "key", ["name", "version", "display_name", "experiment_name", "description"]
)
def test_names_and_versions_stay_as_written(tmp_path: Path, key: str, written: str) -> None:
    assert read(tmp_path, f"{key}: {written}") == {key: written}
    assert read(tmp_path, f"model: {{{key}: {written}}}") == {"model": {key: written}}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("key", ["value", "default"])
def test_inputs_of_type_string_stay_as_written(tmp_path: Path, key: str, written: str) -> None:
    text = f"inputs: {{a: {{{key}: {written}, type: string}}}}"
    assert read(tmp_path, text)["inputs"]["a"][key] == written


def test_numbers_stay_numbers_elsewhere(tmp_path: Path) -> None:
    text = (
        "inputs: {version: 1.10, name: 3, b: {type: number, value: 1e-5}}\n"
        "properties: {torchyard.hang_after_s: 60, other: null}\n"
        "tags: {gone: null}\n"
        "limits: {timeout: 60}\n"
    )
    assert read(tmp_path, text) == {
        "inputs": {"version": 1.1, "name": 3, "b": {"type": "number", "value": "1e-5"}},
        "properties": {"torchyard.hang_after_s": 60, "other": None},
        "tags": {"gone": None},
        "limits": {"timeout": 60},
    }
