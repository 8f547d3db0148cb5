"""What the program is told: its settings, its arguments, which of the job's nodes it is on.

Owns: reading them.
Leaves: their meaning to the other modules.
Always: nothing is read from the environment elsewhere, except by link.py and metrics.py.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS_FOLDER = "azureml-models"


class Settings:
    """The keys of settings.json, the command's arguments, and the node's number."""

    def __init__(self, written: dict[str, Any], options: argparse.Namespace) -> None:
        self.root = os.path.abspath(written["root"])
        self.script = str(written["script"])
        self.input_type = str(written["input_type"])
        self.mini_batch_size = int(written["mini_batch_size"])
        self.processes = int(written["processes"])
        self.appends_rows = bool(written["appends_rows"])
        self.output_file_name = str(written["output_file_name"])
        self.max_retries = int(written["max_retries"])
        self.timeout_s = float(written["timeout_s"])
        self.error_threshold = int(written["error_threshold"])
        self.logging_level = str(written["logging_level"])
        self.splits_failed_batches = bool(written["splits_failed_batches"])
        self.has_threads = bool(written["has_threads"])
        self.model_as = str(written["model_as"])
        self.model_folder = str(written["model_folder"])
        self.input = os.path.abspath(options.input)
        self.output = os.path.abspath(options.output)
        self.model = os.path.abspath(options.model) if options.model else ""
        self.node = int(os.environ.get("NODE_RANK") or "0")
        self.node_count = len(os.environ.get("AZ_BATCH_HOST_LIST", "").split(","))
        self.records = os.path.abspath(os.environ.get("AZUREML_OUTPUT_DIRECTORY") or "outputs")

    @property
    def predictions(self) -> str:
        return os.path.join(self.output, self.output_file_name)


def read() -> Settings:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True, help="the file or folder to score")
    parser.add_argument("--output", required=True, help="where the predictions go")
    parser.add_argument("--model", default="", help="where the model's files are")
    options = parser.parse_args()
    with open(os.path.join(HERE, "settings.json"), encoding="utf-8") as file:
        return Settings(json.load(file), options)


def variables(settings: Settings, temporary: str) -> dict[str, str]:
    """Those that scoring scripts read, as Azure sets them."""
    made = dict(os.environ)
    made["AML_APP_ROOT"] = settings.root
    made["AZUREML_ENTRY_SCRIPT"] = settings.script
    made["AZUREML_BI_OUTPUT_PATH"] = settings.output
    if settings.model:
        made["AZUREML_MODEL_DIR"] = _model_folder(settings, temporary)
    threads = made.get("OMP_NUM_THREADS", "")
    if settings.processes > 1 and threads.isdigit() and not settings.has_threads:
        made["OMP_NUM_THREADS"] = str(max(1, int(threads) // settings.processes))
    return made


def _model_folder(settings: Settings, temporary: str) -> str:
    """AZUREML_MODEL_DIR: a folder that holds the model under its own name."""
    model, leaf = settings.model, settings.model_folder
    if os.path.isdir(model) and not leaf:
        return model
    parent = os.path.join(temporary, MODELS_FOLDER, *settings.model_as.split("/"))
    target = os.path.join(parent, leaf) if leaf else parent
    os.makedirs(target, exist_ok=True)
    if os.path.isfile(model):
        _link(model, os.path.join(target, os.path.basename(model)))
        return parent
    for path, _, names in os.walk(model):
        # Folders of its own with links to the files: os.walk does not enter a link to a folder.
        there = os.path.normpath(os.path.join(target, os.path.relpath(path, model)))
        os.makedirs(there, exist_ok=True)
        for name in names:
            _link(os.path.join(path, name), os.path.join(there, name))
    return parent


def _link(file: str, name: str) -> None:
    """The same file under another name: MLflow refuses links that lead out of a model's folder."""
    try:
        os.link(os.path.realpath(file), name)
    except OSError:  # another file system, or another user's file
        os.symlink(file, name)
