"""One real step of what Azure's own file adds to its image beside training.

Always: a package is imported inside the step of its own component only; what it answers is
asserted.
"""

from __future__ import annotations

import os
import subprocess
import sys


def azureml_dataset_runtime() -> str:
    """Read a table by its engine into pandas."""
    import azureml.dataprep

    with open("table.csv", "w") as file:
        file.write("name,value\nfirst,1\nsecond,2\n")
    frame = azureml.dataprep.read_csv("table.csv").to_pandas_dataframe()
    assert list(frame.columns) == ["name", "value"] and len(frame) == 2, frame
    return "a table of 2 rows, read into pandas"


def azureml_inference_server_http() -> str:
    """Answer a request by a scoring script."""
    import builtins

    with open("score.py", "w") as file:
        file.write("def init(): pass\ndef run(data): return [2 * each for each in eval(data)]\n")
    os.environ.update(AML_APP_ROOT=os.getcwd(), AZUREML_ENTRY_SCRIPT="score.py")
    own_print = builtins.print
    from azureml_inference_server_http.server.entry import app

    builtins.print = own_print  # the server's writes to its log
    answer = app.test_client().post("/score", data="[1, 2]")
    assert (answer.status_code, answer.get_json()) == (200, [2, 4]), answer.get_data()
    return "a script answered a request: [2, 4]"


def inference_schema() -> str:
    """Describe a function's input by an example, and call it."""
    from inference_schema.parameter_types.standard_py_parameter_type import (
        StandardPythonParameterType,
    )
    from inference_schema.schema_decorators import input_schema
    from inference_schema.schema_util import get_input_schema

    def total(data: list[int]) -> int:
        return sum(data)

    run = input_schema("data", StandardPythonParameterType([1, 2]))(total)
    schema = get_input_schema(run)["properties"]["data"]
    assert schema["items"]["type"] == "integer" and run(data=[1, 2, 3]) == 6, schema
    return f"the schema of [1, 2]: {schema['type']} of {schema['items']['type']}"


def ipykernel() -> str:
    """Run a cell in a kernel of its own process."""
    from jupyter_client.manager import start_new_kernel

    lines: list[str] = []
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        client.execute_interactive(
            "print(6 * 7)",
            timeout=120,
            output_hook=lambda message: lines.append(message["content"].get("text", "")),
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert "".join(lines).strip() == "42", lines
    return "a cell printed 42"


def debugpy() -> str:
    """Listen for an editor."""
    import socket

    import debugpy

    host, port = debugpy.listen(("127.0.0.1", 0))
    with socket.create_connection((host, port), timeout=60):
        return "listened for an editor, and was reached"


def py_spy() -> str:
    """Say its version: whether it may look into a process is the machine's decision."""
    program = os.path.join(os.path.dirname(sys.executable), "py-spy")
    outcome = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return outcome.stdout.strip()


def torch_tb_profiler() -> str:
    """Profile some steps, and read the trace as TensorBoard's plugin does."""
    import torch
    from torch_tb_profiler.io import Cache
    from torch_tb_profiler.profiler import RunLoader

    plan = torch.profiler.schedule(wait=0, warmup=1, active=2)
    write = torch.profiler.tensorboard_trace_handler("trace")
    with torch.profiler.profile(schedule=plan, on_trace_ready=write) as profile:
        for _ in range(3):
            torch.ones(64, 64).mm(torch.ones(64, 64))
            profile.step()
    run = RunLoader("run", os.path.abspath("trace"), Cache()).load()
    views = sorted(view.display_name for view in run.views)
    assert len(run.workers) == 1 and "Operator" in views, (run.workers, views)
    return f"read a trace of 2 steps: {', '.join(views)}"


def pybind11() -> str:
    """Find the headers that extensions are compiled with."""
    import pybind11

    header = os.path.join(pybind11.get_include(), "pybind11", "pybind11.h")
    assert os.path.getsize(header) > 10_000, header
    return "its headers are in the environment"
