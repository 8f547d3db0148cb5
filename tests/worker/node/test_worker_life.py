"""A node's life, seen from the server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import other_pythons
from eventually import eventually
from torchyard.executors.bundle import worker_zip
from torchyard.executors.local import LocalExecutor
from torchyard.shared.history_spool import HistorySpool
from torchyard.shared.plan import InputPlan, OutputPlan
from worker.bench import Bench, is_alive

ALL_EVENTS = ["node_started", "ranks_started", "rank_exited", "node_finalizing", "node_exited"]


def test_a_successful_job_delivers_everything(bench: Bench) -> None:
    code = bench.server.put_snapshot(
        {"pkg/hello.sh": "echo hello from $0"}, {"pkg/hello.sh": "0755"}
    )
    words_snapshot = bench.server.put_snapshot({"words.txt": "one two"})
    plan = bench.plan(
        "./pkg/hello.sh; cat ${{inputs.words}}; echo ${{ inputs.rate }}; echo oops >&2\n"
        "echo data > ${{outputs.model}}/m.bin; echo more > outputs/o.txt; echo line > logs/l.txt",
        code=code,
        inputs={
            "words": InputPlan("uri_file", snapshot=words_snapshot),
            "rate": InputPlan("literal", value="0.1"),
        },
        outputs={"model": OutputPlan()},
    )
    bench.run(plan)
    server = bench.server
    assert server.kinds() == ALL_EVENTS
    assert bench.exit() == {"exit_code": 0, "error": None}
    assert server.logs == {
        "user_logs/std_log.txt": b"hello from ./pkg/hello.sh\none two0.1\noops\n",
        "logs/l.txt": b"line\n",
    }
    assert server.files == {"outputs/o.txt": b"more\n"}
    assert server.outputs == {"model/m.bin": b"data\n"}
    names = sorted(entry.name for entry in bench.node(plan).iterdir())
    assert names == ["exit.json", "lock", "worker.json", "worker.log"]
    assert (Path(plan.scratch) / "plan.json").stat().st_mode & 0o777 == 0o600
    assert bench.worker_log(plan) == ""


def test_a_shared_output_has_what_is_there_and_delivers_what_changed(bench: Bench) -> None:
    bench.server.previous = {
        "model/old.pt": b"old\n", "model/deep/ä b.pt": b"1", "model/log.txt": b"one\n",
    }  # fmt: skip
    plan = bench.plan(
        "cd ${{outputs.model}}; cat old.pt 'deep/ä b.pt'; echo two >> log.txt; echo new > new.pt",
        outputs={"model": OutputPlan(is_shared=True)},
    )
    bench.run(plan)
    assert bench.exit()["exit_code"] == 0
    assert bench.server.logs["user_logs/std_log.txt"] == b"old\n1"
    assert bench.server.outputs == {"model/log.txt": b"one\ntwo\n", "model/new.pt": b"new\n"}


def test_variables_may_name_inputs_and_outputs(bench: Bench) -> None:
    plan = bench.plan(
        "echo rate $RATE; echo data > $OUT/m.bin",
        inputs={"rate": InputPlan("literal", value="0.1")},
        outputs={"model": OutputPlan()},
        environment_variables={"RATE": "${{inputs.rate}}", "OUT": "${{ outputs.model.path }}"},
    )
    bench.run(plan)
    assert bench.server.logs["user_logs/std_log.txt"] == b"rate 0.1\n"
    assert bench.server.outputs == {"model/m.bin": b"data\n"}


def test_a_failed_rank_stops_the_gang_and_orphaned_processes(bench: Bench) -> None:
    # The other ranks start children that are hard to find: in other sessions, without an
    # environment, without a parent, ignoring SIGTERM.
    plan = bench.plan(
        'echo partial > outputs/r$RANK.txt; if [ "$RANK" = 2 ]; then\n'
        "until [ -e outputs/r0.txt -a -e outputs/r1.txt ]; do sleep 0.05; done\n"
        "sleep 0.4; exit 7; fi\n"
        f"setsid {nap(301)} & env -i setsid {nap(302)} & (setsid env -i sh -c '{nap(303)}' &)\n"
        f"(trap '' TERM; {nap(304)}) & {nap(305)}",
        processes_per_node=3,
    )
    bench.run(plan)
    exit_file = bench.exit()
    details = exit_file["error"].pop("details")
    assert exit_file == {
        "exit_code": 7,
        "error": {
            "code": "rank_failed",
            "message": "rank 2 on node 0 exited with code 7",
            "hint": "see user_logs/std_log_process_2.txt",
        },
    }
    assert (details["rank"], details["node"], details["exit_code"]) == (2, 0, 7)
    assert sorted(bench.server.files) == [f"outputs/r{rank}.txt" for rank in range(3)]
    first = bench.server.find("rank_exited")
    assert (first["rank"], first["exit_code"], first["signal"]) == (2, 7, None)
    for number in range(301, 306):
        assert not _sleeping(number), number


def test_two_ranks_on_one_port_are_told_apart_from_another_program(bench: Bench) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = (
        "import os, socket, time\n"
        "while os.environ['RANK'] == '1' and not os.path.exists('bound'): time.sleep(0.05)\n"
        "server = socket.socket()\n"
        f"server.bind(('127.0.0.1', {port}))\n"
        "server.listen()\n"
        "open('bound', 'w').close()\n"
        "time.sleep(600)\n"
    )
    code = bench.server.put_snapshot({"serve.py": script})
    plan = bench.plan(f"{sys.executable} serve.py", code=code, processes_per_node=2, grace_s=1.0)
    bench.run(plan)
    error = bench.exit()["error"]
    assert error["code"] == "port_in_use" and error["details"]["rank"] == 1
    assert error["hint"].startswith(f"rank 0 of this job listens on port {port}: ")


def test_a_failure_is_reported_before_the_other_ranks_have_ended(bench: Bench) -> None:
    plan = bench.plan(
        "if [ $RANK = 1 ]; then until [ -e deaf ]; do sleep 0.05; done; kill -9 $$; fi\n"
        "trap '' TERM; touch deaf; sleep 306 & wait; wait",
        processes_per_node=2,
        grace_s=1.0,
    )
    bench.run(plan)
    assert _at(bench, "node_exited") - _at(bench, "rank_exited") > 0.8
    assert bench.exit()["exit_code"] == 137
    assert "killed by signal 9 (SIGKILL)" in bench.exit()["error"]["message"]


def test_processes_that_a_successful_job_leaves_are_stopped(bench: Bench) -> None:
    plan = bench.plan(f"env -i setsid {nap(307)} > /dev/null 2>&1 < /dev/null & exit 0")
    bench.run(plan)
    assert bench.exit()["exit_code"] == 0
    assert not _sleeping(307)


@pytest.mark.parametrize(
    ("reason", "code"), [("cancel", "canceled"), ("failed", "stopped"), ("timeout", "timeout")]
)
def test_a_stop_request_stops_the_ranks_and_keeps_outputs(
    bench: Bench, reason: str, code: str
) -> None:
    handle = bench.launch(bench.plan(f"echo kept > outputs/k; {nap(308)}"))
    bench.server.wait_for("ranks_started")
    bench.server.wait_until(lambda: _sleeping(308))
    bench.server.say_stop(reason)
    bench.wait(handle)
    assert bench.exit()["exit_code"] == 143
    assert bench.exit()["error"]["code"] == code
    assert bench.server.files == {"outputs/k": b"kept\n"}


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_kill_request_allows_no_grace(bench: Bench, asked_before: bool) -> None:
    handle = bench.launch(bench.plan(f"trap '' TERM; {nap(311)}", grace_s=300.0))
    bench.server.wait_for("ranks_started")
    bench.server.wait_until(lambda: _sleeping(311))
    if asked_before:
        bench.server.say_stop("cancel")
        bench.server.wait_for("node_stopping")
    # Waiting ends before the grace does.
    bench.server.say_stop("cancel", kill=True)
    bench.wait(handle)
    assert bench.exit()["error"]["code"] == "canceled"


@pytest.mark.parametrize(
    ("reason", "graces"),
    [
        ("preempted", {"grace_s": 300.0, "preemption_grace_s": 0.2}),
        ("resized", {"grace_s": 300.0, "preemption_grace_s": 0.2}),
        ("cancel", {"grace_s": 0.2, "preemption_grace_s": 300.0}),
    ],
)
def test_ranks_that_go_on_later_have_a_grace_of_their_own(
    bench: Bench, reason: str, graces: dict[str, float]
) -> None:
    handle = bench.launch(bench.plan(f"trap '' TERM; {nap(312)}", **graces))
    bench.server.wait_for("ranks_started")
    bench.server.wait_until(lambda: _sleeping(312))
    bench.server.say_stop(reason)
    bench.wait(handle)


def test_sigterm_to_the_worker_is_a_stop_request(bench: Bench) -> None:
    handle = bench.launch(bench.plan("sleep 309"))
    bench.server.wait_for("ranks_started")
    bench.executor.stop(handle, 10.0)
    bench.wait(handle)
    assert bench.exit()["error"]["code"] == "stopped"


def test_a_job_over_its_time_limit_fails(bench: Bench) -> None:
    bench.run(bench.plan("sleep 310", timeout_s=0.3))
    error = bench.exit()["error"]
    assert (error["code"], error["message"]) == (
        "timeout",
        "the job ran longer than its limit of 0.3 s",
    )


def test_a_timeout_reports_where_every_rank_was(bench: Bench) -> None:
    """Two ranks have a child like a data loader's, one is not Python."""
    script = (
        "import multiprocessing, os, time\n"
        "def wait_for_data():\n"
        "    os.mkdir('child-' + os.environ['RANK']); time.sleep(318)\n"
        "child = multiprocessing.get_context('fork').Process(target=wait_for_data)\n"
        "child.start()\n"
        "def train():\n"
        # On one line: a rank that is held up after its mark stands where it will stay.
        "    os.mkdir('rank-' + os.environ['RANK']); time.sleep(318)\n"
        "train()\n"
    )
    snapshot = bench.server.put_snapshot({"train.py": script})
    command = "test $RANK = 2 && exec sleep 318 || exec python train.py"
    plan = bench.plan(
        command,
        code=snapshot,
        environment=sys.prefix,
        processes_per_node=3,
        timeout_s=600.0,
        last_stacks_s=180.0,
    )
    handle = bench.launch(plan)
    # Like reaching the limit, but only once every rank is sleeping.
    marks = [
        bench.node(plan) / "work" / f"{pids}-{n}" for pids in ("child", "rank") for n in (0, 1)
    ]
    bench.server.wait_until(lambda: all(mark.exists() for mark in marks))
    bench.server.say_stop("timeout")
    bench.wait(handle)
    error = bench.exit()["error"]
    assert error["code"] == "timeout" and "stacks_rank_<n>.txt" in error["hint"]
    assert error["details"]["stood"] == [
        {"rank": 0, "where": "train.py line 7 in train"},
        {"rank": 1, "where": "train.py line 7 in train"},
        {"rank": 2, "where": "no Python code"},
    ]
    for rank in (0, 1):
        shipped = bench.server.logs[f"user_logs/stacks_rank_{rank}.txt"].decode()
        assert f"rank {rank} on node 0" in shipped and "the job reached its time limit" in shipped
        assert "in wait_for_data" in shipped, "the child's stack is missing"
    assert b"sleep 318" in bench.server.logs["user_logs/stacks_rank_2.txt"]
    assert bench.server.kinds().index("node_stopping") < bench.server.kinds().index("node_exited")
    bench.wait_until_none_left(plan)


def test_an_attempt_that_is_over_ends_without_events(bench: Bench) -> None:
    handle = bench.launch(bench.plan("sleep 311"))
    bench.server.wait_for("ranks_started")
    bench.server.over = True
    bench.wait(handle)
    assert bench.server.kinds() == ["node_started", "ranks_started"]
    assert bench.executor.status(handle).state == "exited"
    assert not (bench.node(bench.plans[0]) / "work").exists()


def test_the_ranks_of_a_killed_worker_are_stopped(bench: Bench) -> None:
    plan = bench.plan(f"env -i setsid {nap(312)} & (trap '' TERM; {nap(313)}) & {nap(314)}")
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    bench.server.wait_until(lambda: all(map(_sleeping, (312, 313, 314))))
    pids = bench.who(plan)
    os.kill(pids["pid"], signal.SIGKILL)
    bench.wait(handle)
    assert not any(map(_sleeping, (312, 313, 314)))
    # The recovery worker has reported it.
    assert bench.exit()["error"]["code"] == "worker_lost"
    bench.server.wait_until(lambda: not is_alive(pids["supervisor"]["pid"]))


LOGS_POINTS = """
import http.client, json, os, time
from urllib.parse import urlsplit
relay = http.client.HTTPConnection(urlsplit(os.environ["MLFLOW_TRACKING_URI"]).netloc)
headers = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
for step in range(200):
    point = {"run_id": "job-1", "key": "loss", "value": 0.5, "timestamp": 7, "step": step}
    relay.request("POST", "/api/2.0/mlflow/runs/log-metric", json.dumps(point), headers)
    answer = relay.getresponse()
    assert (answer.status, answer.read()) == (200, b"{}")
open("logged", "w").close()
time.sleep(318)
"""


def _steps_in(spool: Path) -> list[int]:
    spool_file = HistorySpool(spool / "history")
    lines = spool_file.read(1_000, 1 << 20)[1]
    spool_file.close()
    return [json.loads(line)["step"] for line in lines]


def test_the_recovery_worker_delivers_a_killed_workers_run_history(bench: Bench) -> None:
    bench.server.refuse = lambda _, path: (500, {}) if path == "/history" else None
    plan = bench.plan(f"exec {sys.executable} - <<'END'\n{LOGS_POINTS}END")
    handle = bench.launch(plan)
    bench.server.wait_until((bench.node(plan) / "work" / "logged").exists)
    os.kill(bench.who(plan)["pid"], signal.SIGKILL)
    bench.server.wait_for("node_finalizing")
    assert _steps_in(bench.node(plan) / "spool") == list(range(200))
    bench.server.refuse = lambda *_: None
    bench.wait(handle)
    assert [record["step"] for record in bench.server.history[0]] == list(range(200))


@pytest.mark.slow
def test_the_run_history_of_an_attempt_that_is_over_stays_on_the_node(bench: Bench) -> None:
    bench.server.refuse = lambda _, path: (500, {}) if path == "/history" else None
    plan = bench.plan(f"exec {sys.executable} - <<'END'\n{LOGS_POINTS}END")
    handle = bench.launch(plan)
    bench.server.wait_until((bench.node(plan) / "work" / "logged").exists)
    bench.server.refuse = lambda *_: (410, {})
    bench.wait(handle)
    assert not (bench.node(plan) / "work").exists()
    assert _steps_in(bench.node(plan) / "spool") == list(range(200))


def test_rejected_run_history_becomes_a_notice(bench: Bench) -> None:
    original = bench.server._history

    def history(body: dict[str, Any]) -> dict[str, Any]:
        rejected = [{"seq": 0, "message": "too odd"}] * (body["seq"] == 0)
        return {**original(body), "rejected": rejected}

    bench.server._history = history  # type: ignore[method-assign]
    bench.run(bench.plan(f"{sys.executable} - <<'END'\n{LOGS_POINTS.replace('318', '0')}END"))
    assert len(bench.server.history[0]) == 200
    assert bench.server.find("notice") == {"message": "run history: too odd"}
    assert bench.server.kinds()[-1] == "node_exited"


def test_an_abort_after_the_scripts_end_is_a_notice(bench: Bench) -> None:
    # As a Python with the hook that has come to its end.
    bench.run(bench.plan("echo x > outputs/x; touch $TORCHYARD_ERRORS/$$.end; kill -ABRT $$"))
    assert bench.exit() == {"exit_code": 0, "error": None}
    exited = bench.server.find("rank_exited")
    assert (exited["exit_code"], exited["signal"]) == (0, None)
    assert "aborted (SIGABRT) after its script" in bench.server.find("notice")["message"]
    assert bench.server.files == {"outputs/x": b"x\n"}


def test_an_abort_before_the_scripts_end_is_a_failure(bench: Bench) -> None:
    bench.run(bench.plan("touch $TORCHYARD_ERRORS/$$.stack; kill -ABRT $$"))
    assert bench.exit()["error"]["code"] == "aborted"


def test_processes_of_other_attempts_are_not_stopped(bench: Bench) -> None:
    mark = {"TORCHYARD_ATTEMPT": "t-other:0", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "316"], env=mark) as bystander:
        bench.run(bench.plan("(sleep 316 &) ; exit 3"))
        assert bystander.poll() is None
        bystander.kill()


def test_an_unreachable_server_only_delays_a_job(bench: Bench) -> None:
    plan = bench.plan(
        "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; echo x > outputs/x"
    )
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    bench.server.wait_until(lambda: b"one" in bench.server.logs.get("user_logs/std_log.txt", b""))
    bench.server.stop()
    (bench.node(plan) / "work" / "go").touch()
    time.sleep(0.7)
    assert bench.executor.status(handle).state == "running"
    assert bench.server.kinds()[-1] == "ranks_started"
    bench.server.start()
    bench.wait(handle)
    assert bench.server.kinds() == ALL_EVENTS
    assert bench.server.logs["user_logs/std_log.txt"] == b"one\ntwo\n"
    assert bench.server.files == {"outputs/x": b"x\n"}


def test_an_unreachable_server_at_the_start_only_delays_a_job(bench: Bench) -> None:
    plan = bench.plan("echo x > outputs/x")
    bench.server.stop()
    handle = bench.launch(plan)
    time.sleep(0.4)
    bench.server.start()
    bench.wait(handle)
    assert bench.server.kinds() == ALL_EVENTS
    assert bench.server.files == {"outputs/x": b"x\n"}


def test_blobs_are_fetched_over_http(bench: Bench) -> None:
    files = {f"d/{number}.txt": f"{number}\n" for number in range(20)}
    code = bench.server.put_snapshot({**files, "run.sh": "cat d/7.txt"}, {"run.sh": "0755"})
    bench.run(bench.plan("./run.sh; ls d | wc -l", code=code, blobs=""))
    assert bench.server.logs["user_logs/std_log.txt"].split() == [b"7", b"20"]


@pytest.mark.parametrize("path", ["../evil.txt", "/tmp/evil.txt", "a/../../evil.txt"])
def test_a_snapshot_with_a_path_outside_its_folder_is_refused(bench: Bench, path: str) -> None:
    code = bench.server.put_snapshot({path: "x"})
    bench.run(bench.plan("echo never", code=code))
    assert bench.exit()["error"]["code"] == "invalid_snapshot"
    assert "ranks_started" not in bench.server.kinds()


def test_a_missing_blob_fails_the_job(bench: Bench) -> None:
    bench.run(bench.plan("echo never", code="0" * 64))
    assert bench.exit()["error"]["code"] == "blob_missing"


def test_a_refused_output_fails_the_job(bench: Bench) -> None:
    refusal = {"error": {"code": "limit", "message": "quota is full", "hint": "delete jobs"}}
    bench.server.refuse = lambda _, path: (413, refusal) if path.startswith("/files") else None
    bench.run(bench.plan("echo x > outputs/x"))
    error = bench.exit()["error"]
    assert error["code"] == "upload_refused"
    assert error["message"] == "the server refused output `x`: quota is full"
    assert bench.exit()["exit_code"] == 1


def test_the_worker_runs_under_the_oldest_python(bench: Bench) -> None:
    python = other_pythons.python(other_pythons.WORKER)
    plan = bench.plan("echo $RANK", node_count=2, processes_per_node=2)
    Path(plan.scratch).mkdir(parents=True)
    plan_file = Path(plan.scratch) / "plan.json"
    plan_file.write_text(plan.to_json())
    bench.server.node_count = 2
    command = [python, "-I", "-S", str(worker_zip(bench.home)), "--plan", str(plan_file), "--node"]
    workers = [subprocess.Popen([*command, str(node)]) for node in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert sorted(bench.server.logs.values()) == [b"0\n", b"1\n", b"2\n", b"3\n"]


def test_secrets_are_masked_in_all_logs(bench: Bench) -> None:
    bench.run(bench.plan("echo $MLFLOW_TRACKING_TOKEN"))
    assert b"yard_r_" not in bench.server.logs["user_logs/std_log.txt"]
    assert "yard_" not in bench.worker_log(bench.plans[0])


def test_secrets_that_a_job_inherits_from_the_server_are_masked(bench: Bench) -> None:
    token = "hf_QmZxTnVbKcLp"
    inherited = {**os.environ, "HF_TOKEN": token, "SOME_VALUE": "not_a_secret_one"}
    bench.executor = LocalExecutor(bench.home, inherited)
    bench.run(bench.plan("echo $HF_TOKEN $SOME_VALUE"))
    output = bench.server.logs["user_logs/std_log.txt"]
    assert output == b"*" * len(token) + b" not_a_secret_one\n"


def _at(bench: Bench, kind: str) -> float:
    """When the worker posted the event, by its own clock."""
    return next(_moment(event["at"]) for event in bench.server.events[0] if event["kind"] == kind)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def nap(seconds: int) -> str:
    """A `sleep` of unique length, so that parallel tests can't be confused."""
    return f"sleep {seconds}.{os.getpid()}"


def _sleeping(seconds: int) -> bool:
    """Whether a `nap` of this many seconds is running."""
    command = nap(seconds).replace(" ", "\0").encode() + b"\0"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == command:
                return True
        except OSError:
            continue
    return False


def _notices(bench: Bench) -> list[str]:
    events = bench.server.events.get(0, [])
    return [event["body"]["message"] for event in events if event["kind"] == "notice"]


def test_what_is_no_file_among_the_outputs_is_told(bench: Bench) -> None:
    bench.run(
        bench.plan("mkfifo outputs/pipe; ln -s /dev/null outputs/null; ln -s gone outputs/link")
    )
    links, others = _notices(bench)
    assert links.endswith("not delivered: `outputs/link`")
    assert others.endswith("devices: `outputs/null`, `outputs/pipe`")


def test_a_link_to_nothing_among_the_outputs_is_told(bench: Bench) -> None:
    bench.run(
        bench.plan(
            "ln -s nowhere outputs/last; ln -s . outputs/loop; echo x > outputs/a.pt; "
            "echo x > other.pt; ln -s gone ${{outputs.model}}/b",
            outputs={"model": OutputPlan()},
        )
    )
    (notice,) = _notices(bench)
    assert notice.endswith("point to nothing are not delivered: `model/b`, `outputs/last`")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        # As `>-` makes of two lines.
        ('python -c " import json; print(json.dumps(1))"', "`python -c`"),
        ("python <<'END'\nif True:\nprint(1)\nEND", "standard input"),
        ("python -c 'eval(\"1 +\")'", "a text that the script compiles"),
        ("echo 'x = = 1' > a.py; python a.py", "the file is not valid"),
    ],
)
def test_a_syntax_error_is_told_where_it_is(bench: Bench, command: str, hint: str) -> None:
    bench.run(bench.plan(command, environment=sys.prefix))
    error = bench.exit()["error"]
    assert error["code"] == "syntax_error" and hint in error["hint"]


def short_links(home: Path) -> list[str]:
    """The links to nodes' folders that the supervisors of this home have not removed."""
    links = Path("/tmp").glob(f"yard-{os.getuid()}-*")
    return [str(link) for link in links if os.readlink(link).startswith(f"{home}/")]


def test_a_worker_whose_folder_was_deleted_ends_with_its_ranks(bench: Bench) -> None:
    plan = bench.plan("echo ready; exec sleep 600")
    bench.launch(plan)
    bench.server.wait_for("ranks_started")
    bench.node(plan).rename(bench.home / "gone")
    bench.wait_until_none_left(plan)
    eventually(lambda: not bench._programs(), "the worker and its supervisor to end")
    assert short_links(bench.home) == []


def test_a_worker_that_waits_for_its_server_ends_when_its_folder_is_deleted(bench: Bench) -> None:
    go = bench.home / "go"
    plan = bench.plan(f"until [ -e {go} ]; do sleep 0.1; done")
    bench.launch(plan)
    pid = bench.server.wait_for("ranks_started")["ranks"][0]["pid"]
    bench.server.stop()
    go.touch()
    eventually(lambda: not is_alive(pid), "the rank to end")
    bench.node(plan).rename(bench.home / "gone")
    eventually(lambda: not bench._programs(), "the worker and its supervisor to end")
    assert short_links(bench.home) == []
    bench.server.start()
