"""What a deployment says of the error that ended its scoring script."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from torchyard.endpoints.running.in_instance import scoring_error


def _raised(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    script = folder / "score.py"
    script.write_text(text)
    monkeypatch.setenv("AML_APP_ROOT", str(folder))
    monkeypatch.setenv("AZUREML_ENTRY_SCRIPT", "score.py")
    with pytest.raises(Exception) as caught:
        runpy.run_path(str(script))
    return scoring_error.describe(caught.value)


def test_a_long_message_in_colours_is_its_first_line_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'raise ValueError("weights only, \\x1b[1mor not\\x1b[0m. \\n" + "more\\n" * 5000)\n'
    assert _raised(tmp_path, text, monkeypatch) == (
        "`score.py`: importing it raised ValueError: weights only, or not. "
        "(score.py, line 1, in <module>)"
    )


def test_an_error_without_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _raised(tmp_path, "x = {}\nassert x\n", monkeypatch) == (
        "`score.py`: importing it raised AssertionError (score.py, line 2, in <module>)"
    )


def test_an_error_in_which_no_code_of_the_script_took_part_is_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AML_APP_ROOT", str(tmp_path))
    monkeypatch.setenv("AZUREML_ENTRY_SCRIPT", "score.py")
    error = ImportError("no module `distutils`,\n\x1b[1mwhich it imports\x1b[0m")
    assert scoring_error.describe(error) == (
        "azureml-inference-server-http in the environment can't start: "
        "ImportError: no module `distutils`, which it imports"
    )
