"""Score an ONNX file, an exported program or a TorchScript module without a script of the user's.

Owns: finding the file, reading requests, the types of inputs, writing answers.
Leaves: running the model to ONNX Runtime or PyTorch.
Always: a request that does not fit the model is answered with 400 and says what does not fit.
"""

import importlib
import json
import os

ONNX, EXPORTED, SCRIPTS = ".onnx", ".pt2", (".ts", ".torchscript")
STATE: "dict[str, Any]" = {}


class NotFitting(ValueError):
    """The request does not fit the model."""


def init() -> None:
    path = model_file(os.environ["AZUREML_MODEL_DIR"])
    STATE["model"] = OnnxModel(path) if path.endswith(ONNX) else TorchModel(path)


def model_file(top: str, ends: "tuple[str, ...]" = (ONNX, EXPORTED, *SCRIPTS)) -> str:
    for folder, _, files in os.walk(top, followlinks=True):
        for name in sorted(files):
            if name.endswith(ends):
                path = os.path.join(folder, name)
                # ONNX Runtime refuses weights beside a file that is a link to another folder.
                file = os.path.realpath(path)
                return file if os.path.basename(file) == name else path
    raise FileNotFoundError(f"no {', '.join(ends)} file is below {top}")


def run(raw_data: str) -> "Any":
    # By the name that every version of the server answers to.
    from azureml.contrib.services.aml_response import AMLResponse

    try:
        body = json.loads(raw_data)
        if not isinstance(body, dict) or not ("inputs" in body or "data" in body):
            raise NotFitting('write {"inputs": {name: values}}, or {"data": values}')
        return STATE["model"].answer(body)
    except ValueError as error:
        return AMLResponse({"message": str(error)[:1000]}, 400, json_str=True)


def inputs_by_name(body: "Any", names: "list[str]") -> "dict[str, Any]":
    """The request's values by the names of the model's inputs."""
    if "inputs" not in body:
        if len(names) != 1:
            raise NotFitting(f"the model has inputs {names}: name them below `inputs`")
        return {names[0]: body["data"]}
    values = body["inputs"]
    if not isinstance(values, dict) or sorted(values) != sorted(names):
        raise NotFitting(f"the model's inputs are {names}")
    return values


TYPES = {"float": "float32", "double": "float64", "string": "object"}


def as_list(value: "Any") -> "Any":
    return value.tolist() if hasattr(value, "tolist") else value


class OnnxModel:
    def __init__(self, path: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if os.environ.get("WORKER_COUNT", "1") != "1":
            # Threads that spin while they wait take the cores from the processes beside this one.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            path, options, providers=onnxruntime.get_available_providers()
        )
        self.types = {each.name: self.type_of(each.type) for each in self.session.get_inputs()}
        self.outputs = [each.name for each in self.session.get_outputs()]

    def type_of(self, text: str) -> str:
        """numpy's name of `tensor(float)`."""
        inner = text.partition("(")[2].rstrip(")")
        return TYPES.get(inner, inner)

    def answer(self, body: "Any") -> "Any":
        lists = {name: as_list(each) for name, each in self.outputs_of(body).items()}
        if "inputs" not in body and len(lists) == 1:
            return next(iter(lists.values()))
        return {"outputs": lists}

    def outputs_of(self, body: "Any") -> "dict[str, Any]":
        """The outputs by their names, as arrays where they are tensors."""
        values = inputs_by_name(body, list(self.types))
        feed = {name: self.tensor(name, value) for name, value in values.items()}
        try:
            outputs = self.session.run(None, feed)
        except Exception as error:
            if type(error).__name__ == "InvalidArgument":
                raise NotFitting(str(error)) from error
            raise
        return dict(zip(self.outputs, outputs))

    def tensor(self, name: str, value: "Any") -> "Any":
        import numpy

        dtype = self.types[name]
        try:
            tensor = numpy.asarray(value, dtype=dtype)
            exact = numpy.asarray(value) if tensor.dtype.kind in "iu" else tensor
            is_changed = exact.dtype.kind in "iuf" and bool((exact != tensor).any())
        except (OverflowError, TypeError, ValueError) as error:
            raise NotFitting(f"input `{name}`: {error}") from error
        if is_changed:
            raise NotFitting(f"input `{name}` holds numbers that are not {dtype}")
        return tensor


class TorchModel:
    def __init__(self, path: str) -> None:
        torch = importlib.import_module("torch")
        self.types: list[Any] = []
        if path.endswith(EXPORTED):
            program = torch.export.load(path)
            self.module = program.module()
            self.names = list(program.graph_signature.user_inputs)
            nodes = {node.name: node for node in program.graph.nodes}
            self.types = [nodes[name].meta["val"].dtype for name in self.names]
        else:
            self.module = torch.jit.load(path, map_location="cpu").eval()
            arguments = self.module.forward.schema.arguments[1:]
            self.names = [argument.name for argument in arguments]
            self.types = [torch.float32] * len(self.names)

    def answer(self, body: "Any") -> "Any":
        torch = importlib.import_module("torch")
        values = inputs_by_name(body, self.names)
        tensors = []
        for name, kind in zip(self.names, self.types):
            dtypes = body.get("dtypes")
            dtype = dtypes.get(name) if isinstance(dtypes, dict) else None
            try:
                kind = getattr(torch, dtype) if isinstance(dtype, str) else kind
                tensors.append(torch.tensor(values[name], dtype=kind))
            except (AttributeError, OverflowError, RuntimeError, TypeError, ValueError) as error:
                raise NotFitting(f"input `{name}`: {error}") from error
        try:
            # The setting is each thread's own, so it is made here.
            with torch.no_grad():
                return self.lists(self.module(*tensors))
        except (RuntimeError, AssertionError) as error:
            raise NotFitting(str(error)) from error

    def lists(self, value: "Any") -> "Any":
        if hasattr(value, "tolist"):
            return value.tolist()
        if isinstance(value, dict):
            return {name: self.lists(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.lists(each) for each in value]
        return value


MYPY = False
if MYPY:
    from typing import Any
