"""What the runs of an experiment hold, read by mlflow's own client, and how two readings differ.

    MLFLOW_TRACKING_URI=URL python recorded_runs.py EXPERIMENT [ROWSxFEATURES]

Owns: the reading, as JSON on the standard output; the comparison.
Leaves: where the runs come from to the caller.
Always: what has to differ is left out: ids, times, places, who ran it.

The reading needs mlflow and what the models need; the comparison needs nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Named by the person who runs the script, or made of ids and times.
_OWN_TAGS = ("mlflow.user", "mlflow.runName", "mlflow.log-model.history", "mlflow.runColor")
_OWN_TAG_PREFIXES = ("mlflow.source.", "azureml.", "_azureml.")
# A job keeps its logs, and what was written to ./outputs, beside what the script logged.
_OF_THE_JOB = ("user_logs/", "system_logs/", "logs/", "azureml-logs/", "outputs/")
# Hold ids, times or random bytes.
_OWN_CONTENT = ("MLmodel", ".pkl", ".pth", ".pt", ".ckpt", ".png", ".html", "cv_results.csv")
# How long something took is never the same; that it was logged is.
_TIMES = ("_time",)


def read(experiment: str, shape: tuple[int, int]) -> list[dict[str, Any]]:
    """Every run of the experiment, by what it holds; `shape` is what its models are asked with."""
    from mlflow import MlflowClient

    client = MlflowClient()
    found_experiment = client.get_experiment_by_name(experiment)
    assert found_experiment is not None, f"no experiment {experiment}"
    runs = client.search_runs([found_experiment.experiment_id], max_results=1000)
    runs = sorted(runs, key=_order)
    numbers = {run.info.run_id: number for number, run in enumerate(runs)}
    models = _logged_models(client, found_experiment.experiment_id)
    return [
        {
            "status": run.info.status,
            "params": run.data.params,
            "metrics": {
                key: [
                    (point.step, _value(key, point.value))
                    for point in client.get_metric_history(run_id, key)
                ]
                for key in run.data.metrics
            },
            "latest": {key: _value(key, value) for key, value in run.data.metrics.items()},
            "tags": {key: value for key, value in run.data.tags.items() if not _is_own(key)},
            "parent": numbers.get(run.data.tags.get("mlflow.parentRunId", "")),
            "datasets": sorted(
                _dataset(dataset_input) for dataset_input in run.inputs.dataset_inputs
            ),
            "model_history": [
                (entry["artifact_path"], sorted(entry["flavors"]))
                for entry in json.loads(run.data.tags.get("mlflow.log-model.history", "[]"))
            ],
            "artifacts": dict(_artifacts(client, run_id)),
            "logged_models": [model["read"] for model in models if model["run_id"] == run_id],
            "predictions": {
                name: _predicted(uri, shape)
                for name, uri in [
                    *_models_of(client, run_id),
                    *(
                        (model["name"], model["uri"])
                        for model in models
                        if model["run_id"] == run_id
                    ),
                ]
            },
        }
        for run in runs
        for run_id in [run.info.run_id]
    ]


def _order(run: Any) -> tuple[Any, ...]:
    """By what they hold: runs within a run may start in the same millisecond."""
    data = run.data
    return (sorted(data.params.items()), sorted(data.metrics), run.info.start_time)


def _is_own(tag: str) -> bool:
    return tag in _OWN_TAGS or tag.startswith(_OWN_TAG_PREFIXES) or tag == "mlflow.parentRunId"


def _value(key: str, value: float) -> str:
    return "a time" if key.endswith(_TIMES) else str(value)


def _dataset(dataset_input: Any) -> tuple[str, ...]:
    tags = json.dumps({tag.key: tag.value for tag in dataset_input.tags}, sort_keys=True)
    dataset = dataset_input.dataset
    return (
        dataset.name,
        dataset.digest,
        dataset.source_type,
        dataset.schema or "",
        dataset.profile or "",
        tags,
    )


def _artifacts(client: Any, run_id: str, folder: str = "") -> Iterator[tuple[str, str]]:
    """(path, sha256 where it has to be the same)."""
    from mlflow.artifacts import download_artifacts

    for entry in client.list_artifacts(run_id, folder):
        if entry.path.startswith(_OF_THE_JOB) or f"{entry.path}/" in _OF_THE_JOB:
            continue
        if entry.is_dir:
            yield from _artifacts(client, run_id, entry.path)
        elif entry.path.endswith(_OWN_CONTENT):
            yield entry.path, ""
        else:
            with tempfile.TemporaryDirectory() as local:
                uri = f"runs:/{run_id}/{entry.path}"
                file = download_artifacts(artifact_uri=uri, dst_path=local)
                yield entry.path, hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _logged_models(client: Any, experiment_id: str) -> list[dict[str, Any]]:
    """MLflow 3's; an older client knows none."""
    if not hasattr(client, "search_logged_models"):
        return []
    logged = client.search_logged_models([experiment_id])
    return [
        {
            "run_id": model.source_run_id,
            "name": model.name,
            "uri": f"models:/{model.model_id}",
            "read": {
                "name": model.name,
                "status": str(model.status),
                "model_type": model.model_type or "",
                "params": dict(model.params or {}),
                "tags": {key: value for key, value in model.tags.items() if not _is_own(key)},
                "metrics": _newest(model.metrics or []),
                "files": sorted(_model_files(client, model.model_id)),
            },
        }
        for model in sorted(logged, key=lambda model: model.creation_timestamp)
    ]


def _newest(metrics: Any) -> list[tuple[str, str, int, str]]:
    """Of each metric of a model: torchyard keeps the older ones with the run only."""
    newest = {}
    for metric in sorted(metrics, key=lambda metric: (metric.timestamp, metric.step)):
        newest[metric.key, metric.dataset_name or ""] = (
            metric.step,
            _value(metric.key, metric.value),
        )
    return sorted((*key, *point) for key, point in newest.items())


def _model_files(client: Any, model_id: str, folder: str | None = None) -> Iterator[str]:
    for entry in client.list_logged_model_artifacts(model_id, folder):
        if entry.is_dir:
            yield from _model_files(client, model_id, entry.path)
        else:
            yield entry.path


def _models_of(client: Any, run_id: str) -> list[tuple[str, str]]:
    """MLflow 2's: folders among the artifacts of a run."""
    paths = [path for path, _ in _artifacts(client, run_id) if path.endswith("MLmodel")]
    folders = [path.rpartition("/")[0] for path in paths]
    return [(folder, f"runs:/{run_id}/{folder}") for folder in folders]


def _predicted(uri: str, shape: tuple[int, int]) -> list[str]:
    """What the model, loaded from the server, says to numbers made up here."""
    import numpy
    import pandas

    from mlflow import pyfunc

    model = pyfunc.load_model(uri)
    rows, features = shape
    inputs: Any = numpy.linspace(-1, 3, rows * features, dtype="float32").reshape(shape)
    columns = model.metadata.get_input_schema()
    if columns is not None and columns.is_tensor_spec():
        inputs = inputs.reshape((rows, *columns.inputs[0].shape[1:]))
    if columns is not None and not columns.is_tensor_spec():
        inputs = pandas.DataFrame(inputs.astype("float64"), columns=columns.input_names())
    elif columns is not None:
        inputs = inputs.astype(columns.input_types()[0])
    if "torch" in sys.modules:
        # A public script's network drops out even when it is asked.
        sys.modules["torch"].manual_seed(7)
    return [str(value) for value in numpy.asarray(model.predict(inputs)).reshape(-1)]


def differences(recorded: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """In words; empty when they are equal."""
    if len(recorded) != len(expected):
        return [f"{len(recorded)} runs, {len(expected)} expected"]
    texts = []
    for number, (run, other) in enumerate(zip(recorded, expected, strict=True)):
        for part in other:
            if part == "parent" and other[part] is None:
                continue  # a run that a job starts is within the job's
            texts += [f"run {number}: {part}: {text}" for text in _parted(run[part], other[part])]
    return texts


def _parted(recorded: Any, expected: Any) -> list[str]:
    if isinstance(recorded, Mapping) and isinstance(expected, Mapping):
        texts = [f"`{key}` is missing" for key in expected if key not in recorded]
        texts += [f"`{key}` is too many" for key in recorded if key not in expected]
        for key in expected:
            if key in recorded and not _is_equal(recorded[key], expected[key]):
                texts.append(
                    f"`{key}` is {_short(recorded[key])}, {_short(expected[key])} expected"
                )
        return texts
    if isinstance(recorded, list) and isinstance(expected, list) and len(recorded) == len(expected):
        pairs = enumerate(zip(recorded, expected, strict=True))
        return [
            f"{number}: {text}" for number, (item, other) in pairs for text in _parted(item, other)
        ]
    return (
        []
        if _is_equal(recorded, expected)
        else [f"{_short(recorded)}, {_short(expected)} expected"]
    )


def _is_equal(recorded: Any, expected: Any) -> bool:
    """Numbers may differ in their last digits: threads add up in any order."""
    if isinstance(recorded, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(recorded) == len(expected) and all(map(_is_equal, recorded, expected))
    if isinstance(recorded, Mapping) and isinstance(expected, Mapping):
        return not _parted(recorded, expected)
    if recorded == expected:
        return True
    try:
        return math.isclose(float(recorded), float(expected), rel_tol=1e-5, abs_tol=1e-7)
    except (TypeError, ValueError):
        return False


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 900 else text[:900] + "…"


def counts(runs: list[dict[str, Any]]) -> dict[str, int]:
    """How much was compared."""
    return {
        "runs": len(runs),
        "params": sum(len(run["params"]) for run in runs),
        "metrics": sum(len(run["metrics"]) for run in runs),
        "points": sum(len(points) for run in runs for points in run["metrics"].values()),
        "tags": sum(len(run["tags"]) for run in runs),
        "files": sum(len(run["artifacts"]) for run in runs),
        "models": sum(len(run["predictions"]) for run in runs),
    }


def main() -> None:
    rows, _, features = (sys.argv[2] if len(sys.argv) > 2 else "5x4").partition("x")
    print(json.dumps(read(sys.argv[1], (int(rows), int(features)))))


if __name__ == "__main__":
    main()
