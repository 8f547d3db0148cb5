"""Score files with an MLflow model, without a script of the user's.

Owns: reading files by their names' ends, one row for each prediction.
Leaves: the prediction to mlflow.pyfunc.
Always: a row is the number of the row in its file, the prediction, the file's name, as Azure ML
writes them.

Source: https://learn.microsoft.com/azure/machine-learning/how-to-mlflow-batch
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

STATE: dict[str, Any] = {}
TABLES = {".csv": "read_csv", ".parquet": "read_parquet", ".pqt": "read_parquet"}
IMAGES = (".png", ".jpg", ".jpeg", ".tiff", ".bmp", ".gif")


def init() -> None:
    # Not by its name: who checks this code's types has another package of that name.
    pyfunc = importlib.import_module("mlflow.pyfunc")
    STATE["model"] = pyfunc.load_model(model_folder(os.environ["AZUREML_MODEL_DIR"]))


def model_folder(top: str) -> str:
    """The folder with the file MLmodel."""
    for folder, _, files in os.walk(top, followlinks=True):
        if "MLmodel" in files:
            return os.path.dirname(os.path.realpath(os.path.join(folder, "MLmodel")))
    raise FileNotFoundError(f"the model has no file MLmodel below {top}")


def run(mini_batch: list[str]) -> Any:
    import pandas

    tables = []
    for path in mini_batch:
        data = read(path)
        table = predicted(STATE["model"].predict(data))
        table.insert(0, "row", range(len(table)))
        table["file"] = os.path.basename(path)
        tables.append(table)
    return pandas.concat(tables)


def read(path: str) -> Any:
    import pandas

    end = os.path.splitext(path)[1].lower()
    if end in TABLES:
        return fitted(getattr(pandas, TABLES[end])(path))
    if end in (".json", ".jsonl"):
        return fitted(pandas.read_json(path, lines=end == ".jsonl"))
    if end in IMAGES:
        import numpy

        image = importlib.import_module("PIL.Image")
        return numpy.asarray(image.open(path))[None]
    ends = ", ".join(sorted((*TABLES, *IMAGES, ".json", ".jsonl")))
    raise ValueError(f"a file `*{end}` is not scored without a script; these are: {ends}")


def fitted(data: Any) -> Any:
    """Numbers of the types that the model's signature names."""
    schema = STATE["model"].metadata.get_input_schema()
    if schema is None or schema.is_tensor_spec():
        return data
    for spec in schema.inputs:
        if spec.name in data.columns and getattr(spec.type, "name", "") in NUMBERS:
            data[spec.name] = data[spec.name].astype(spec.type.to_numpy())
    return data


NUMBERS = ("integer", "long", "float", "double")


def predicted(answer: Any) -> Any:
    import pandas

    if isinstance(answer, pandas.DataFrame):
        return answer.reset_index(drop=True)
    if isinstance(answer, pandas.Series):
        return answer.reset_index(drop=True).to_frame("prediction")
    values = answer.tolist() if hasattr(answer, "tolist") else list(answer)
    return pandas.DataFrame({"prediction": values})
