"""Models behind torchyard's endpoints and behind other servers: speed, and the first answer.

    python benchmarks/serving_peers.py --sample FOLDER [--venvs FOLDER] [--rounds 3] [--only NAME …]
        [--processes 1]

The models: a function that answers at once, the sklearn sample of azureml-examples (FOLDER is its
cli/endpoints/online/model-1) and ResNet-18 by ONNX Runtime on one thread. Every server runs the
same load() and predict() in `--processes` processes: torchyard's whole endpoint (router, keys,
supervised instance), azureml-inference-server-http alone, `mlflow models serve`, Ray Serve and
BentoML, each in a virtual environment that uv makes in `--venvs`; one that can't be installed is
left out, and named. All take turns within a round. One connection gives the latency, eight the
requests a second.

First answers, of the trivial model: from starting the server, or from creating the deployment in an
environment that is built, to the first answer; and for torchyard from a process that is there:
traffic given to a deployment that is ready, and a serving process that was killed.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from figures import temporary_yard
from router import Figures, Target, free_port, measure

from torchyard import Client

HERE = Path(__file__).resolve().parent
LIMIT_S = 120.0
COMMON = ["numpy==2.3.1", "scipy==1.16.0", "scikit-learn==1.7.0", "joblib", "onnxruntime==1.22.1"]
INFERENCE_SERVER = "azureml-inference-server-http==1.4.1"
PACKAGES = {
    "azureml": [INFERENCE_SERVER],
    "mlflow": ["mlflow>=3.1,<4"],
    "ray": ["ray[serve]>=2.40,<3"],
    "bentoml": ["bentoml>=1.4,<2"],
}
TRIVIAL = """
import os
def load():
    pass
def predict(data):
    return [os.getpid()] if data == "pid" else [1.0]
"""
SKLEARN = """
import glob, os
import joblib, numpy
def load():
    global model
    (path,) = glob.glob(os.environ["AZUREML_MODEL_DIR"] + "/**/*.pkl", recursive=True)
    model = joblib.load(path)
def predict(data):
    return model.predict(numpy.array(data)).tolist()
"""
RESNET = """
import base64, glob, os
import numpy, onnxruntime
def load():
    global session
    (path,) = glob.glob(os.environ["AZUREML_MODEL_DIR"] + "/**/*.onnx", recursive=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
def predict(data):
    image = numpy.frombuffer(base64.b64decode(data), "uint8").reshape(1, 3, 224, 224)
    name = session.get_inputs()[0].name
    outputs = session.run(None, {name: image.astype("float32") / 255})[0]
    return outputs.argmax(1).tolist()
"""
SCORE = """
import json, model_code
def init():
    model_code.load()
def run(raw_data):
    return model_code.predict(json.loads(raw_data)["data"])
"""
RAY = """
import os, sys, time
import ray
from ray import serve
import model_code
@serve.deployment(
    ray_actor_options={"num_cpus": 0},
    max_ongoing_requests=16,
    num_replicas=int(os.environ["PROCESSES"]),
)
class Model:
    def __init__(self):
        model_code.load()
    async def __call__(self, request):
        return model_code.predict((await request.json())["data"])
ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
serve.run(Model.bind(), route_prefix="/score")
while True:
    time.sleep(60)
"""
BENTOML = """
import os
from typing import Any
import bentoml
import model_code
@bentoml.service(workers=int(os.environ["PROCESSES"]))
class Model:
    def __init__(self):
        model_code.load()
    @bentoml.api(route="/score")
    def score(self, data: Any) -> list:
        return model_code.predict(data)
"""
MLFLOW = """
import mlflow.pyfunc
class Model(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        import model_code
        model_code.load()
    def predict(self, context, model_input, params=None):
        import model_code
        data = model_input.tolist()
        return model_code.predict(data[0] if isinstance(data[0], str) else data)
mlflow.pyfunc.save_model("mlflow_model", python_model=Model(), code_paths=["model_code.py"])
"""


@dataclass(frozen=True)
class Model:
    """`requests` are those of one measurement; `file` is empty for none."""

    name: str
    code: str
    data: Any
    requests: int
    file: Path | None = None


@dataclass(frozen=True)
class Server:
    """`command` starts it at a port, in the folder with the model's code."""

    name: str
    command: Callable[[Path, int], list[str]]
    path: str = "/score"
    key: str = "data"


SERVERS = {
    "azureml": Server(
        "azureml",
        lambda bin, port: [
            str(bin / "azmlinfsrv"), "--entry_script", "score.py", "--port", str(port),
            "--health_port", str(free_port()),
        ],
    ),
    "mlflow": Server(
        "mlflow",
        lambda bin, port: [
            str(bin / "mlflow"), "models", "serve", "-m", "mlflow_model", "--env-manager", "local",
            "-h", "127.0.0.1", "-p", str(port), "-w", os.environ["PROCESSES"],
        ],
        "/invocations",
        "inputs",
    ),
    "ray": Server("ray", lambda bin, port: [str(bin / "python"), "ray_program.py", str(port)]),
    "bentoml": Server(
        "bentoml",
        lambda bin, port: [
            str(bin / "bentoml"), "serve", "bentoml_program:Model", "--host", "127.0.0.1",
            "--port", str(port),
        ],
    ),
}  # fmt: skip


def install(name: str, venvs: Path, packages: list[str]) -> Path | None:
    """The folder of its programs; None where it can't be installed."""
    folder = venvs / name
    if not (folder / "complete").exists():
        # It takes the package sources that pip is configured for.
        uv = [sys.executable, str(HERE.parent / "tools" / "run_uv.py")]
        for command in (
            [*uv, "venv", "-q", "--clear", "--python", "3.11", str(folder)],
            [*uv, "pip", "install", "-q", "--python", str(folder / "bin" / "python"), *packages],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{name} is left out: {done.stderr.strip().splitlines()[-1]}", flush=True)
                return None
        (folder / "complete").touch()
    return folder / "bin"


def write(model: Model, folder: Path, programs: dict[str, Path]) -> None:
    """The files of all servers for one model."""
    (folder / "model").mkdir(parents=True)
    (folder / "code").mkdir()
    if model.file is None:
        (folder / "model" / "empty").touch()
    else:
        shutil.copyfile(model.file, folder / "model" / model.file.name)
    for name, text in (("model_code", model.code), ("score", SCORE), ("ray_program", RAY),
                       ("bentoml_program", BENTOML), ("mlflow_program", MLFLOW)):  # fmt: skip
        (folder / f"{name}.py").write_text(text)
    for name in ("model_code.py", "score.py"):
        (folder / "code" / name).write_text((folder / name).read_text())
    if "mlflow" in programs:
        command = [str(programs["mlflow"] / "python"), "mlflow_program.py"]
        subprocess.run(
            command, cwd=folder, env=variables_of(folder), check=True, capture_output=True
        )


def variables_of(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "AZUREML_MODEL_DIR": str(folder / "model"),
        "PYTHONPATH": str(folder),
        "WORKER_COUNT": os.environ["PROCESSES"],
        "BENTOML_DO_NOT_TRACK": "True",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": tempfile.gettempdir(),
    }


def post(target: Target) -> bytes | None:
    """The answer; None while there is none."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {target.key}"}
    address = f"http://127.0.0.1:{target.port}{target.path}"
    try:
        request = urllib.request.Request(address, target.body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
            return body
    except (urllib.error.URLError, OSError):
        return None


def pid_of(target: Target) -> int:
    """The process of the trivial model that answers; 0 for none."""
    return int(json.loads(post(replace(target, body=b'{"data": "pid"}')) or b"[0]")[0])


def first_answer(target: Target, is_alive: Callable[[], bool] = lambda: True) -> None:
    until = time.monotonic() + LIMIT_S
    while post(target) is None:
        if not is_alive() or time.monotonic() > until:
            raise TimeoutError(f"{target.name} does not answer")
        time.sleep(0.01)


@contextmanager
def serving(server: Server, programs: Path, model: Model, folder: Path) -> Iterator[Target]:
    """A peer that answers; all of its processes are ended with the block."""
    port = free_port()
    body = json.dumps({server.key: inputs_of(server, model)}).encode()
    target = Target(server.name, port, server.path, body)
    with (folder / f"{server.name}.log").open("wb") as log:
        process = subprocess.Popen(
            server.command(programs, port), cwd=folder,
            # mlflow starts its server by a name on the path.
            env=variables_of(folder) | {"PATH": f"{programs}:{os.environ['PATH']}"},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            first_answer(target, lambda: process.poll() is None)
            yield target
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def inputs_of(server: Server, model: Model) -> Any:
    return [model.data] if server.key == "inputs" and isinstance(model.data, str) else model.data


def deploy(client: Client, model: Model, folder: Path, name: str = "blue", **keys: Any) -> Target:
    """A deployment that is ready, at its endpoint, without traffic."""
    document = {
        "name": name,
        "endpoint_name": model.name,
        "model": {"path": "./model"},
        "code_configuration": {"code": "./code", "scoring_script": "score.py"},
        "environment_variables": {"WORKER_COUNT": os.environ["PROCESSES"]},
        "environment": {
            "conda_file": {
                "name": "serving",
                "dependencies": ["python=3.11", "pip", {"pip": [*COMMON, INFERENCE_SERVER]}],
            }
        },
        "instance_count": 1,
        "request_settings": {
            "max_concurrent_requests_per_instance": 16, "request_timeout_ms": 60_000
        },
        **keys,
    }  # fmt: skip
    client.online_endpoints.create({"name": model.name})
    client.online_deployments.wait(client.online_deployments.create(document, folder))
    endpoint = client.online_endpoints.get(model.name)
    _, _, host_and_path = endpoint.scoring_uri.partition("://")
    address, _, path = host_and_path.partition("/")
    return Target(
        "torchyard", int(address.rpartition(":")[2]), f"/{path}",
        json.dumps({"data": model.data}).encode(), client.online_endpoints.credential(endpoint),
    )  # fmt: skip


def compare(model: Model, targets: list[Target], rounds: int) -> None:
    figures: dict[str, list[Figures]] = {target.name: [] for target in targets}
    for target in targets:
        measure(target, max(16, model.requests // 5))
    for number in range(rounds):
        for target in targets if number % 2 else reversed(targets):
            figures[target.name].append(measure(target, model.requests))
    whole_per_s = median(each.per_s for each in figures["torchyard"])
    for name, each in figures.items():
        per_s = median(tried.per_s for tried in each)
        p50, p99 = median(tried.p50_ms for tried in each), median(tried.p99_ms for tried in each)
        print(
            f"{model.name:8} {name:10} {per_s:8.1f}/s (torchyard {whole_per_s / per_s:.2f} times)"
            f"  p50 {p50:.2f} ms  p99 {p99:.2f} ms", flush=True,
        )  # fmt: skip


def seconds(run: Callable[[], object]) -> float:
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def first_answers(
    client: Client, model: Model, folder: Path, programs: dict[str, Path], rounds: int
) -> None:
    """Every environment is built, and every program was started before."""
    times: dict[str, list[float]] = {}
    for number in range(rounds):
        name = f"round{number}"
        before = time.perf_counter()
        target = deploy(client, model, folder, name)

        def answer(target: Target = target, name: str = name) -> None:
            client.online_endpoints.update(model.name, {"traffic": {name: 100}})
            first_answer(target)

        moved = seconds(answer)
        times.setdefault("torchyard, deployment", []).append(time.perf_counter() - before)
        times.setdefault("torchyard, traffic to a ready one", []).append(moved)
        pid = pid_of(target)
        assert pid, "the model did not answer"
        os.kill(pid, signal.SIGKILL)

        def is_new(target: Target = target, pid: int = pid) -> None:
            until = time.monotonic() + LIMIT_S
            while pid_of(target) in (0, pid):
                assert time.monotonic() < until, "the serving process did not come back"

        times.setdefault("torchyard, killed process", []).append(seconds(is_new))
        # Its place on the cluster is for the next one.
        client.online_endpoints.update(model.name, {"traffic": {name: 0}})
        client.online_deployments.delete(model.name, name)
        for peer, program in programs.items():
            begin = time.perf_counter()
            with serving(SERVERS[peer], program, model, folder):
                times.setdefault(f"{peer}, its program", []).append(time.perf_counter() - begin)
    times["torchyard, none of its instances runs"] = woken(client, model, folder, rounds)
    for name, each in times.items():
        print(f"first answer {name:38} {median(each):6.2f} s", flush=True)


def woken(client: Client, model: Model, folder: Path, rounds: int) -> list[float]:
    """Seconds from a request to its answer, of a deployment that has scaled to zero."""
    scale = {"type": "target_utilization", "min_instances": 0, "max_instances": 1}
    own = {"scale_to_zero_after_s": 1}
    target = deploy(client, model, folder, "asleep", scale_settings=scale, torchyard=own)
    client.online_endpoints.update(model.name, {"traffic": {"asleep": 100}})
    first_answer(target)
    times = []
    for _ in range(rounds):
        process = Path(f"/proc/{pid_of(target)}")
        until = time.monotonic() + LIMIT_S
        while process.exists():
            assert time.monotonic() < until, "the deployment does not scale to zero"
            time.sleep(0.1)
        time.sleep(1)  # its job ends
        times.append(seconds(lambda: first_answer(target)))
    return times


def resnet(venvs: Path) -> Path | None:
    """The exported model; None where torch can't be installed."""
    file = venvs / "resnet18" / "model.onnx"
    if not file.exists():
        program = install("export", venvs, ["torch==2.13.0", "numpy", "onnx", "onnxscript",
                                          "onnxruntime"])  # fmt: skip
        if program is None:
            return None
        command = [program / "python", HERE / "onnx_models.py", "--write", file.parent]
        words = [str(word) for word in command]
        variables = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
        subprocess.run(words, env=variables, check=True, stdout=subprocess.DEVNULL)
    return file


def models(sample: Path, venvs: Path, only: list[str]) -> list[Model]:
    made = []
    if "trivial" in only:
        made.append(Model("trivial", TRIVIAL, [list(range(1, 11))], 600))
    if "sklearn" in only:
        request = json.loads((sample / "sample-request.json").read_text())
        file = sample / "model" / "sklearn_regression_model.pkl"
        made.append(Model("sklearn", SKLEARN, request["data"], 600, file))
    if "resnet" in only:
        file_or_none = resnet(venvs)
        image = base64.b64encode(random.Random(0).randbytes(3 * 224 * 224)).decode()
        if file_or_none is not None:
            made.append(Model("resnet", RESNET, image, 32, file_or_none))
    return made


def delete_endpoints(client: Client) -> None:
    """Router and instances outlive their server, so that they have to go before it does."""
    for endpoint in client.online_endpoints.list():
        client.online_endpoints.delete(endpoint.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=Path, required=True, help="the folder model-1")
    parser.add_argument(
        "--venvs", type=Path, default=Path(tempfile.gettempdir()) / "torchyard-serving-peers"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="of every server")
    parser.add_argument("--only", nargs="+", default=["trivial", "sklearn", "resnet", "first"])
    parser.add_argument("--peers", nargs="*", default=list(SERVERS), choices=list(SERVERS))
    options = parser.parse_args()
    options.venvs.mkdir(parents=True, exist_ok=True)
    os.environ["PROCESSES"] = str(options.processes)
    programs_by_name = {
        name: install(name, options.venvs, [*COMMON, *PACKAGES[name]]) for name in options.peers
    }
    programs = {name: program for name, program in programs_by_name.items() if program is not None}
    chosen = models(options.sample, options.venvs, options.only)
    # It keeps the environment for the next run.
    home = options.venvs / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    with (
        temporary_yard(home) as variables,
        tempfile.TemporaryDirectory() as top,
        ExitStack() as ending,
    ):
        os.environ.update(variables)
        client = Client()
        delete_endpoints(client)  # of a run that was killed
        ending.callback(delete_endpoints, client)
        for model in chosen:
            folder = Path(top) / model.name
            write(model, folder, programs)
            with ExitStack() as stack:
                targets = [deploy(client, model, folder)]
                client.online_endpoints.update(model.name, {"traffic": {"blue": 100}})
                first_answer(targets[0])
                for name, program in programs.items():
                    peer = serving(SERVERS[name], program, model, folder)
                    try:
                        targets.append(stack.enter_context(peer))
                    except TimeoutError as error:
                        log = (folder / f"{name}.log").read_text(errors="replace")
                        print(f"{error}: {log[-1500:]}", flush=True)
                compare(model, targets, options.rounds)
            client.online_endpoints.delete(model.name)
        if "first" in options.only:
            folder = Path(top) / "first"
            model = Model("first", TRIVIAL, [list(range(1, 11))], 1)
            write(model, folder, programs)
            first_answers(client, model, folder, programs, options.rounds)
            client.online_endpoints.delete(model.name)


if __name__ == "__main__":
    main()
