"""Online endpoints on a real server: instances, updates, and what is killed under them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard, running_yard, wait_until
from torchyard.endpoints.router import control

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
_ENDPOINTS = "online-endpoints"
_REQUEST = {"data": [[1, 2, 3], [3, 2, 1]]}
_ANSWER = [11.5, 9.5]
_SCORE = """
import json
import os
def init():
    global weights
    {init}
    root = os.getenv("AZUREML_MODEL_DIR")
    there = [os.path.join(path, name) for path, _, names in os.walk(root) for name in names]
    assert there == [os.path.join(root, "model/weights.json")], there
    with open(there[0]) as file:
        weights = json.load(file)
def run(raw_data):
    rows = json.loads(raw_data)["data"]
    if rows == "pid":
        return {{"pid": os.getpid(), "master": os.getppid()}}
    return [sum(a * b for a, b in zip(weights, row)) + {bias} for row in rows]
"""


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with running_yard("endpoints") as yard:
        try:
            yield yard
        finally:
            wait_until(lambda: not _router_answers(yard), 60, "the router has ended")


def _router_answers(yard: Yard) -> bool:
    try:
        control.ask(yard.home / "router", {"ask": "hello"})
    except OSError:
        return False
    return True


@pytest.fixture
def sample(yard: Yard, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sample]:
    """An endpoint of the test's own, which is gone after it, so that its nodes are free."""
    name = f"sample-{zlib.crc32(request.node.name.encode()):x}"
    made = Sample(yard, tmp_path, name)
    yield made
    yard("online-endpoint", "delete", "-n", name, "--yes")
    wait_until(lambda: not yard.get(_ENDPOINTS)["value"], 120, "the endpoint is gone")


class Sample:
    """An endpoint with files as `az ml` takes them, in a folder of its own."""

    def __init__(self, yard: Yard, folder: Path, name: str) -> None:
        self.yard, self.folder, self.name = yard, folder, name
        (folder / "model").mkdir()
        (folder / "model" / "weights.json").write_text("[1, 2, 2]")
        (folder / "request.json").write_text(json.dumps(_REQUEST))
        (folder / "endpoint.yml").write_text(json.dumps({"name": name, "auth_mode": "key"}))
        yard("online-endpoint", "create", "-f", str(folder / "endpoint.yml"))

    def deploy(
        self,
        name: str,
        verb: str = "create",
        init: str = "pass",
        bias: float = 0.5,
        expect: int = 0,
        script: str = "",
        **keys: Any,
    ) -> str:
        code = self.folder / f"code-{name}"
        code.mkdir(exist_ok=True)
        (code / "score.py").write_text(script or _SCORE.format(init=init, bias=bias))
        document = {
            "name": name,
            "endpoint_name": self.name,
            "model": {"path": "./model"},
            "code_configuration": {"code": f"./code-{name}", "scoring_script": "score.py"},
            "environment": {"conda_file": {"dependencies": ["python=3.11", "pip"]}},
            **keys,
        }
        file = self.folder / f"{name}.yml"
        file.write_text(json.dumps(document))
        return self.yard("online-deployment", verb, "-f", str(file), expect=expect)

    def traffic(self, text: str) -> None:
        self.yard("online-endpoint", "update", "-n", self.name, "--traffic", text)

    def show(self, name: str) -> dict[str, Any]:
        return self.yard.get(f"{_ENDPOINTS}/{self.name}/deployments/{name}")

    def invoke(self) -> Any:
        file = str(self.folder / "request.json")
        return json.loads(
            self.yard("online-endpoint", "invoke", "-n", self.name, "--request-file", file)
        )

    def ask(self, body: Any = _REQUEST) -> tuple[int, Any, str]:
        """Status, answer, and the deployment that answered."""
        address = self.yard.get(f"{_ENDPOINTS}/{self.name}")["scoring_uri"]
        keys = self.yard.post(f"{_ENDPOINTS}/{self.name}/keys", {})
        return _post(address, keys["primaryKey"], body)

    @contextmanager
    def load(self) -> Iterator[Counter[int]]:
        """Ask without a pause within the block; the counter holds the answers' statuses."""
        address = self.yard.get(f"{_ENDPOINTS}/{self.name}")["scoring_uri"]
        key = self.yard.post(f"{_ENDPOINTS}/{self.name}/keys", {})["primaryKey"]
        counts: Counter[int] = Counter()
        is_over = threading.Event()

        def work() -> None:
            while not is_over.is_set():
                counts[_post(address, key, _REQUEST)[0]] += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield counts
        finally:
            is_over.set()
            thread.join()


def _post(address: str, key: str, body: Any) -> tuple[int, Any, str]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return (
                answer.status,
                json.loads(answer.read()),
                answer.headers["azureml-model-deployment"],
            )
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers.get("azureml-model-deployment", "")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.smoke
def test_blue_and_green_share_the_traffic_exactly(yard: Yard, sample: Sample) -> None:
    sample.deploy("blue")
    sample.deploy("green", bias=1.5)
    assert "was added to the environment" in sample.show("blue")["message"]
    sample.traffic("blue=90 green=10")
    assert sample.invoke() in (_ANSWER, [12.5, 10.5])

    def is_shared() -> bool:
        return {sample.ask()[2] for _ in range(20)} == {"blue", "green"}

    wait_until(is_shared, 20, "both answer")
    names = Counter(sample.ask()[2] for _ in range(100))
    assert names == {"blue": 90, "green": 10}
    logs = yard("online-deployment", "get-logs", "-n", "blue", "-e", sample.name)
    assert "POST /score 200" in logs


def test_a_failing_update_leaves_the_old_revision_and_says_where_it_failed(sample: Sample) -> None:
    sample.deploy("blue")
    sample.traffic("blue=100")
    broken = "raise RuntimeError('of another shape')"
    with sample.load() as counts:
        sample.deploy("blue", "update", init=broken, expect=1)
    shown = sample.show("blue")
    assert shown["provisioning_state"] == "Failed"
    assert (
        "init() raised RuntimeError: of another shape (score.py, line 6, in init)"
        in (shown["message"])
    )
    with sample.load() as changing:
        sample.deploy("blue", "update", bias=2.5)
        wait_until(lambda: sample.ask()[1] == [13.5, 11.5], 60, "the new one answers")
    assert set(counts) == set(changing) == {200}
    assert sample.show("blue")["provisioning_state"] == "Succeeded"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("def init():\n    pass\n", "`score.py` does not define run()"),
        ("def run(raw_data):\n    return 1\n", "`score.py` does not define init()"),
        ("import nowhere\n", "importing it raised ModuleNotFoundError: No module named 'nowhere'"),
    ],
    ids=["run", "init", "import"],
)
def test_a_script_that_cannot_be_loaded_fails_its_deployment(
    sample: Sample, script: str, message: str
) -> None:
    sample.deploy("blue", expect=1, script=script)
    shown = sample.show("blue")
    assert shown["provisioning_state"] == "Failed"
    assert message in shown["message"]


_NOT_JSON = """
import json
def init():
    pass
def run(raw_data):
    kind = json.loads(raw_data)["data"]
    if kind == "raise":
        raise KeyError("no such bird")
    return {"set": {1, 2}, "object": object(), "json": [1.5, "ok"]}[kind]
"""


# By hand: it was written on a machine too busy to run it.
@pytest.mark.long
def test_an_answer_that_is_not_json_is_an_error_of_the_model(sample: Sample) -> None:
    sample.deploy("blue", script=_NOT_JSON)
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask({"data": "json"})[0] == 200, 60, "it answers")
    for kind in ("set", "object", "raise"):
        status, answer, _ = sample.ask({"data": kind})
        assert status == 424, (kind, status, answer)
        assert sample.ask({"data": "json"})[:2] == (200, [1.5, "ok"])
    logs = sample.yard("online-deployment", "get-logs", "-n", "blue", "-e", sample.name)
    assert "no such bird" in logs


# By hand: it was written on a machine too busy to run it.
@pytest.mark.long
def test_several_processes_of_an_instance_answer(sample: Sample) -> None:
    sample.deploy(
        "blue",
        environment_variables={"WORKER_COUNT": "2"},
        request_settings={"max_concurrent_requests_per_instance": 8},
    )
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask()[0] == 200, 60, "it answers")
    with ThreadPoolExecutor(4) as pool:

        def both_answered() -> bool:
            answers = list(pool.map(sample.ask, [{"data": "pid"}] * 16))
            assert {status for status, _, _ in answers} == {200}
            assert len({pids["master"] for _, pids, _ in answers}) == 1
            return len({pids["pid"] for _, pids, _ in answers}) == 2

        wait_until(both_answered, 60, "both processes answer")


# By hand: it was written on a machine too busy to run it.
@pytest.mark.long
def test_an_update_whose_readiness_probe_fails_is_rolled_back(sample: Sample) -> None:
    sample.deploy("blue")
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask()[0] == 200, 60, "it answers")
    with sample.load() as counts:
        printed = sample.deploy(
            "blue",
            "update",
            init="import time; time.sleep(600)",
            expect=1,
            readiness_probe={"initial_delay": 1, "period": 1, "failure_threshold": 3},
        )
    assert set(counts) == {200}, counts
    shown = sample.show("blue")
    assert shown["provisioning_state"] == "Failed", printed
    assert "goes on answering" in shown["message"], shown["message"]
    assert sample.ask()[:2] == (200, _ANSWER)


def test_what_is_killed_comes_back(yard: Yard, sample: Sample) -> None:
    sample.deploy("blue")
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask()[0] == 200, 60, "it answers")
    for kind in ("worker", "master", "supervisor"):
        pids = sample.ask({"data": "pid"})[1]
        victim = {
            "worker": pids["pid"],
            "master": pids["master"],
            "supervisor": parent_of(pids["master"]),
        }[kind]
        os.kill(victim, signal.SIGKILL)

        def is_back(before: int = pids["pid"]) -> bool:
            status, answer, _ = sample.ask({"data": "pid"})
            assert status in (200, 502, 503), status
            return status == 200 and answer["pid"] != before

        wait_until(is_back, 60, f"it answers after its {kind} was killed")
    assert sample.ask()[1] == _ANSWER
    jobs = [job["name"] for job in yard.get("jobs")["value"] if sample.name in job["name"]]
    assert len(jobs) == 2


def test_requests_are_answered_and_an_update_goes_on_while_the_server_is_killed(
    yard: Yard, sample: Sample
) -> None:
    sample.deploy("blue")
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask()[0] == 200, 60, "it answers")
    with sample.load() as counts:
        (sample.folder / "code-blue" / "score.py").write_text(_SCORE.format(init="pass", bias=9.5))
        file = str(sample.folder / "blue.yml")
        update = yard.start(
            "online-deployment",
            "update",
            "-f",
            file,
            "--no-wait",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert update.wait(60) == 0
        yard.kill_server()
        time.sleep(1)
        yard("server", "start")
        wait_until(lambda: sample.ask()[1] == [20.5, 18.5], 90, "the update has gone on")
    assert set(counts) == {200}
    names = [job["name"] for job in yard.get("jobs")["value"] if sample.name in job["name"]]
    assert len(names) == 2


def test_instances_are_added_and_ended_without_a_new_revision(sample: Sample) -> None:
    sample.deploy("blue")
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask()[0] == 200, 20, "it answers")
    first = sample.show("blue")["instances"][0]["job"]
    with sample.load() as counts:
        for count in (2, 1):
            sample.deploy("blue", "update", instance_count=count)

            def is_so(target: int = count) -> bool:
                shown = sample.show("blue")
                states = [each["state"] for each in shown["instances"]]
                is_done = shown["provisioning_state"] == "Succeeded"
                return is_done and states == ["Ready"] * target

            wait_until(is_so, 120, f"{count} instances are ready")
    shown = sample.show("blue")
    assert (shown["revision"], shown["instances"][0]["job"]) == (1, first)
    assert set(counts) == {200}


def test_it_scales_to_zero_and_a_request_wakes_it(sample: Sample) -> None:
    sample.deploy(
        "blue",
        scale_settings={"type": "target_utilization", "min_instances": 0, "max_instances": 2},
        torchyard={"scale_to_zero_after_s": 1},
    )
    sample.traffic("blue=100")
    wait_until(lambda: not sample.show("blue")["instances"], 60, "it sleeps")
    assert sample.ask()[:2] == (200, _ANSWER)


_SLOW_START = """
import os
import time
def init():
    with open(os.environ["STARTS"], "a") as file:
        file.write(f"{os.getppid()}\\n")
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.05)
def run(raw_data):
    return "answered"
"""


def test_a_kill_of_what_starts_loses_no_request_that_waits_for_it(
    sample: Sample, tmp_path: Path
) -> None:
    starts, go = tmp_path / "starts", tmp_path / "go"
    go.touch()
    sample.deploy(
        "blue",
        script=_SLOW_START,
        environment_variables={"STARTS": str(starts), "GO": str(go)},
        scale_settings={"type": "target_utilization", "min_instances": 0, "max_instances": 1},
        torchyard={"scale_to_zero_after_s": 1},
    )
    sample.traffic("blue=100")
    wait_until(lambda: not sample.show("blue")["instances"], 60, "it sleeps")
    go.unlink()
    starts.write_text("")
    with ThreadPoolExecutor(30) as pool:
        answers = [pool.submit(sample.ask) for _ in range(30)]
        # The server, then the supervisor that started the next one.
        for count, ancestors in ((1, 0), (2, 1)):
            wait_until(partial(_has_started, starts, count), 60, "it starts")
            pid = _starts(starts)[-1]
            for _ in range(ancestors):
                pid = parent_of(pid)
            os.kill(pid, signal.SIGKILL)
        wait_until(partial(_has_started, starts, 3), 60, "it starts again")
        assert not any(each.done() for each in answers)
        go.touch()
        assert [each.result()[:2] for each in answers] == [(200, "answered")] * 30


def _has_started(file: Path, count: int) -> bool:
    return len(_starts(file)) == count


def _starts(file: Path) -> list[int]:
    """The servers whose scripts began to load."""
    return [int(line) for line in file.read_text().splitlines()]


def test_the_column_that_has_drifted_is_named(yard: Yard, sample: Sample) -> None:
    collections = {name: {"enabled": "true"} for name in ("model_inputs", "model_outputs")}
    sample.deploy("blue", data_collector={"sampling_rate": 1.0, "collections": collections})
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask()[0] == 200, 60, "it answers")
    numbers = Random(22)
    rows = [[numbers.gauss(0, 1) for _ in range(3)] for _ in range(1200)]
    training = sample.folder / "train.csv"
    lines = [",".join(f"{value:.4f}" for value in row) for row in rows[200:]]
    training.write_text("\n".join(["age,area,price", *lines, ""]))
    name = f"{sample.name}-train"
    yard("data", "create", "-n", name, "--type", "uri_file", "--path", str(training))
    address = yard.get(f"{_ENDPOINTS}/{sample.name}")["scoring_uri"]
    key = yard.post(f"{_ENDPOINTS}/{sample.name}/keys", {})["primaryKey"]
    for age, area, price in rows[:200]:
        assert _post(address, key, {"data": [[age, area + 1.5, price]]})[0] == 200
    inputs = f"{sample.name}-blue-model_inputs"

    def drift(*options: str) -> Any:
        words = ("drift", "-n", "blue", "-e", sample.name, "--data", f"{name}:1", *options)
        return json.loads(yard("online-deployment", *words, "-o", "json"))

    def count_collected() -> int:
        yard("data", "download", "-n", inputs, "--download-path", str(sample.folder / "kept"))
        files = (sample.folder / "kept" / inputs).rglob("*.jsonl")
        return sum(len(file.read_text().splitlines()) for file in files)

    wait_until(lambda: count_collected() >= 201, 180, "all requests are kept")
    report = drift("--since", "1h")
    assert report["drifted"] == ["area"]
    assert report["collected"]["rows"] >= 201 and report["reference"]["rows"] == 1000
    assert {each["column"]: each["result"] for each in report["columns"]} == {
        "area": "drifted", "age": "stable", "price": "stable",
    }  # fmt: skip
    job = {
        "command": "cat ${{inputs.kept}}/*/*/*/*.jsonl | wc -l",
        "environment": {"conda_file": {"dependencies": ["python=3.11", "pip"]}},
        "inputs": {"kept": {"type": "uri_folder", "path": f"azureml:{inputs}:1"}},
    }
    (sample.folder / "job.yml").write_text(json.dumps(job))
    assert str(count_collected()) in yard(
        "job", "create", "-f", str(sample.folder / "job.yml"), "--stream"
    )


_COLLECTING_SCORE = """
import json
import pandas as pd
from azureml.ai.monitoring import Collector
from azureml.ai.monitoring.context import BasicCorrelationContext
def init():
    global inputs, outputs, features
    inputs, outputs = Collector(name="model_inputs"), Collector(name="model_outputs")
    features = Collector(name="features")
def run(raw_data):
    rows = pd.DataFrame(json.loads(raw_data)["data"], columns=["a", "b", "c"])
    context = inputs.collect(rows, BasicCorrelationContext(id="of-the-test"))
    features.collect(rows.assign(sum=rows.sum(axis=1))[["sum"]], context)
    answers = pd.DataFrame({"price": rows["a"] + rows["b"]})
    outputs.collect(answers, context)
    return answers["price"].tolist()
"""


# Its environment takes pandas, and over two minutes.
@pytest.mark.long
def test_azures_collector_in_a_script_writes_the_collections(yard: Yard, sample: Sample) -> None:
    collections = {name: {"enabled": True} for name in ("model_inputs", "model_outputs")}
    collections |= {"features": {"enabled": True}, "request": {"enabled": True}}
    packages = {"pip": ["azureml-ai-monitoring"]}
    sample.deploy(
        "blue",
        script=_COLLECTING_SCORE,
        environment={"conda_file": {"dependencies": ["python=3.11", "pip", packages]}},
        data_collector={"collections": collections},
    )
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask()[0] == 200, 60, "it answers")

    def events(collection: str) -> list[Any]:
        asset = f"data/{sample.name}-blue-{collection}/versions/1/files"
        stored = []
        for file in yard.get(asset)["value"]:
            text = yard(
                "data",
                "download",
                "-n",
                f"{sample.name}-blue-{collection}",
                "--download-path",
                str(sample.folder / "kept"),
                "-o",
                "none",
            )
            assert not text
            name = f"{sample.name}-blue-{collection}"
            stored += (sample.folder / "kept" / name / file["path"]).read_text().splitlines()
        return [json.loads(line) for line in stored]

    names = ("model_inputs", "model_outputs", "features", "request")
    wait_until(lambda: all(events(name) for name in names), 60, "all are collected")
    by_name = {name: events(name)[0] for name in names}
    assert by_name["model_inputs"]["data"] == [{"a": 1, "b": 2, "c": 3}, {"a": 3, "b": 2, "c": 1}]
    assert by_name["model_outputs"]["data"] == [{"price": 3}, {"price": 5}]
    assert by_name["features"]["data"] == [{"sum": 6}, {"sum": 6}]
    assert by_name["request"]["data"] == _REQUEST
    assert {by_name[name]["correlationid"] for name in names[:3]} == {"of-the-test"}
    assert by_name["model_inputs"]["agent"].startswith("azureml-ai-monitoring/")


_BATCHED = """
import json
import os
calls = 0
def init():
    pass
def run(raw_data):
    global calls
    calls += 1
    rows = json.loads(raw_data)["data"]
    return [{"row": row, "double": 2 * row, "call": calls, "size": len(rows)} for row in rows]
"""


def test_many_requests_at_once_become_few_calls_and_each_gets_its_own_answer(
    sample: Sample,
) -> None:
    sample.deploy(
        "blue",
        script=_BATCHED,
        torchyard={"batching": {"max_size": 16, "max_wait_ms": 1000}},
        request_settings={"request_timeout_ms": 60_000, "max_queue_wait_ms": 60_000},
    )
    sample.traffic("blue=100")
    wait_until(lambda: sample.ask({"data": [0]})[0] == 200, 60, "it answers")
    address = sample.yard.get(f"{_ENDPOINTS}/{sample.name}")["scoring_uri"]
    key = sample.yard.post(f"{_ENDPOINTS}/{sample.name}/keys", {})["primaryKey"]
    first = sample.ask({"data": [0]})[1][0]["call"]
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda row: _post(address, key, {"data": [row]}), range(64)))
    assert [status for status, _, _ in answers] == [200] * 64
    rows = [rows for _, rows, _ in answers]
    assert [[(each["row"], each["double"]) for each in part] for part in rows] == [
        [(row, 2 * row)] for row in range(64)
    ]
    sizes = {each["call"]: each["size"] for (each,) in rows}
    assert sum(sizes.values()) == 64 and max(sizes.values()) <= 16
    assert 4 <= len(sizes) <= 32
    # No other call was made meanwhile.
    assert sample.ask({"data": [0]})[1][0]["call"] == first + len(sizes) + 1


def test_the_guides_first_endpoint_answers(yard: Yard, tmp_path: Path) -> None:
    printed = _run_guide(yard, tmp_path, "endpoints.md", "numbers")
    assert json.loads(printed) == [3, 6]


def test_the_guides_drift_is_found(yard: Yard, tmp_path: Path) -> None:
    printed = _run_guide(yard, tmp_path, "drift.md", "houses")
    guide = (REPOSITORY / "docs/guides/drift.md").read_text()
    (shown,) = re.findall(r"```text\n(.*?)```", guide, re.DOTALL)
    assert printed == shown


def _has_files(yard: Yard, asset: str) -> bool:
    return bool(yard.get(asset)["value"])


def _run_guide(yard: Yard, folder: Path, page: str, endpoint: str) -> str:
    """Run the first commands of a guide, with its files; returns what the last one printed."""
    guide = (REPOSITORY / "docs/guides" / page).read_text()
    for name, text in re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", guide, re.DOTALL):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (lines, *_) = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    printed = ""
    for line in lines.splitlines():
        words = shlex.split(line)
        if words[1] == "online-deployment" and words[2] == "drift":
            # The router writes after it has answered.
            asset = f"data/{endpoint}-blue-model_inputs/versions/1/files"
            wait_until(partial(_has_files, yard, asset), 30, "the request is kept")
        if words[0] == "yard":
            with yard.start(*words[1:], cwd=folder, stdout=subprocess.PIPE) as process:
                printed = process.communicate(timeout=240)[0].decode()
            assert process.returncode == 0, line
        elif words[0] == "python":
            subprocess.run([sys.executable, *words[1:]], cwd=folder, check=True)
        else:
            subprocess.run(["sh", "-c", line], cwd=folder, check=True)
    yard("online-endpoint", "delete", "-n", endpoint, "--yes")
    return printed
