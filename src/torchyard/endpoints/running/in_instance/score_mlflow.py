"""Score an MLflow model without a script of the user's.

Owns: reading requests in the forms of Azure ML and of `mlflow models serve`, writing answers.
Leaves: the prediction to mlflow.pyfunc.
Always: `input_data` is answered as Azure ML does, with the predictions alone; MLflow's own forms
with `{"predictions": …}`.

Source: https://mlflow.org/docs/latest/deployment/deploy-model-locally (the forms of requests),
https://learn.microsoft.com/azure/machine-learning/how-to-deploy-mlflow-models (`input_data`).
"""

import base64
import importlib
import json
import os

MLFLOW_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
# MLflow's codes for a request that does not fit the model's signature.
REFUSED = ("BAD_REQUEST", "INVALID_PARAMETER_VALUE")
STATE: "dict[str, Any]" = {}


def init() -> None:
    # Not by its name: who checks this code's types has another package of that name.
    pyfunc = importlib.import_module("mlflow.pyfunc")
    STATE["model"] = pyfunc.load_model(model_folder(os.environ["AZUREML_MODEL_DIR"]))


def model_folder(top: str) -> str:
    """The folder with the file MLmodel."""
    for folder, _, files in os.walk(top, followlinks=True):
        if "MLmodel" in files:
            # MLflow refuses a model whose files are links to another folder.
            file = os.path.realpath(os.path.join(folder, "MLmodel"))
            return os.path.dirname(file) if os.path.basename(file) == "MLmodel" else folder
    raise FileNotFoundError(f"the model has no file MLmodel below {top}")


def run(raw_data: str) -> "Any":
    # By the name that every version of the server answers to.
    from azureml.contrib.services.aml_response import AMLResponse

    try:
        form, data, params = read(json.loads(raw_data))
    except (TypeError, ValueError) as error:
        return AMLResponse({"message": str(error)[:1000]}, 400, json_str=True)
    model = STATE["model"]
    try:
        answer = plain(model.predict(data, params=params) if params else model.predict(data))
    except Exception as error:
        if getattr(error, "error_code", "") in REFUSED:
            return AMLResponse({"message": str(error)[:1000]}, 400, json_str=True)
        raise
    return answer if form == "input_data" else {"predictions": answer}


def read(body: "Any") -> "tuple[str, Any, Any]":
    """The request's form, what to predict, and the model's parameters."""
    import numpy
    import pandas

    every_form = ("input_data", *MLFLOW_FORMS)
    form = next((each for each in every_form if isinstance(body, dict) and each in body), "")
    if not form:
        forms = ", ".join(f"`{each}`" for each in every_form)
        raise ValueError(f"the request has none of {forms}")
    value = body[form]
    is_table = isinstance(value, dict) and "data" in value
    if form == "dataframe_split" or (form == "input_data" and is_table):
        data = pandas.DataFrame(
            value["data"], index=value.get("index"), columns=value.get("columns")
        )
    elif form == "dataframe_records" or (isinstance(value, list) and is_records(value)):
        data = pandas.DataFrame(value)
    elif isinstance(value, dict):
        data = {name: numpy.asarray(column) for name, column in value.items()}
    else:
        data = numpy.asarray(value)
    return form, fitted(data), body.get("params")


def is_records(value: "Any") -> bool:
    return bool(value) and all(isinstance(row, dict) for row in value)


def fitted(data: "Any") -> "Any":
    """Values of the types that the model's signature names: JSON knows few types."""
    import pandas

    schema = STATE["model"].metadata.get_input_schema()
    if schema is None:
        return data
    if schema.is_tensor_spec():
        types = [spec.type for spec in schema.inputs]
        if isinstance(data, dict):
            column_types = {spec.name: spec.type for spec in schema.inputs}
            return {
                name: each.astype(column_types.get(name, each.dtype)) for name, each in data.items()
            }
        return data if isinstance(data, pandas.DataFrame) else data.astype(types[0])
    if not isinstance(data, pandas.DataFrame):
        return data
    for spec in schema.inputs:
        if spec.name in data.columns:
            data[spec.name] = converted(data[spec.name], spec.type)
    return data


def converted(column: "Any", kind: "Any") -> "Any":
    """The column as MLflow's own server reads it for a type of the signature."""
    import pandas

    name = getattr(kind, "name", "")
    if name in ("integer", "long", "float", "double"):
        return column.astype(kind.to_numpy())
    if name == "string":
        return column.astype(object)
    if name == "datetime":
        return pandas.to_datetime(column).astype("datetime64[ns]")
    if name == "binary":
        return column.map(lambda text: base64.b64decode(text) if isinstance(text, str) else text)
    return column


def plain(answer: "Any") -> "Any":
    """As JSON can hold it."""
    import numpy
    import pandas

    if isinstance(answer, pandas.DataFrame):
        return json.loads(answer.to_json(orient="records"))
    if isinstance(answer, pandas.Series):
        return plain(answer.to_numpy())
    if isinstance(answer, (numpy.ndarray, numpy.generic)):
        return answer.tolist()
    if isinstance(answer, dict):
        return {name: plain(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(value) for value in answer]
    return answer


MYPY = False
if MYPY:
    from typing import Any
