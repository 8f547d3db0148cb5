"""The verbs, against a fake server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli.conftest import Yard
from cli.fake_server import CREATED_AT, FakeJob, FakeServer, Part, job_body
from torchyard.cli.terminal import tables


@pytest.fixture
def jobs(server: FakeServer) -> list[str]:
    names = [f"job-{number}" for number in range(8)]
    for name in names:
        server.state.jobs[name] = FakeJob(job_body(name))
    return names


def test_create_uploads_what_is_missing_and_posts(server: FakeServer, yard: Yard) -> None:
    Path("jobs/src/pkg").mkdir(parents=True)
    Path("jobs/src/train.py").write_text("print(1)")
    Path("jobs/src/pkg/big.bin").write_bytes(b"b" * (2 << 20))
    Path("jobs/src/.amlignore").write_text("*.log\n")
    Path("jobs/src/x.log").write_text("no")
    Path("jobs/data").mkdir()
    Path("jobs/data/x.log").write_text("data keeps its logs")
    Path("jobs/conda.yml").write_text("dependencies:\n  - python=3.11\n  - pip:\n    - torch\n")
    Path("jobs/job.yml").write_text(
        "command: python train.py ${{inputs.data}}\n"
        "code: src\n"
        "environment: {image: python, conda_file: conda.yml}\n"
        "inputs:\n"
        "  data: {path: ./data}\n"
        "  one: {type: uri_file, path: 'file:data/x.log'}\n"
        "  far: {path: 'azureml://datastores/a/paths/b'}\n"
        "  lr: 1e-3\n"
        "resources: {instance_count: 2}\n"
    )
    arguments = ("job", "create", "-f", "jobs/job.yml", "--set", "inputs.epochs=3", "-o", "json")
    answer = yard(*arguments, "--set", "resources.instance_count=4", "--name", "mine")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["name"] == "mine"
    (posted,) = server.state.posted
    manifests = server.state.manifests
    code = manifests[posted["code"].removeprefix("snapshot:")]
    assert [file["path"] for file in code["files"]] == [".amlignore", "pkg/big.bin", "train.py"]
    data = manifests[posted["inputs"]["data"]["path"].removeprefix("snapshot:")]
    assert [file["path"] for file in data["files"]] == ["x.log"]
    manifest = manifests[posted["inputs"]["one"]["path"].removeprefix("snapshot:")]
    assert manifest["files"] == data["files"]
    assert posted["inputs"]["far"] == {"path": "azureml://datastores/a/paths/b"}
    assert posted["inputs"]["epochs"] == 3 and posted["inputs"]["lr"] == "1e-3"
    assert posted["resources"] == {"instance_count": 4}
    assert posted["environment"]["conda_file"]["dependencies"][0] == "python=3.11"
    assert posted["experiment_name"] == "here"
    assert server.state.validated[0]["code"] == "local:src"
    # The second time the server knows everything: one request a snapshot, no blob.
    server.state.requests.clear()
    assert yard(*arguments).code == 0
    assert [path.rsplit("/", 1)[-1] for _, path in server.state.requests] == [
        "validate", "snapshots", "snapshots", "snapshots", "jobs",
    ]  # fmt: skip


def test_create_streams_and_ends_with_the_jobs_code(server: FakeServer, yard: Yard) -> None:
    Path("job.yml").write_text("command: x\nname: streamed\n")
    job = FakeJob(job_body("streamed", "Failed", exit_code=3))
    job.may_end.set()
    server.state.jobs["streamed"] = job
    answer = yard("job", "create", "-f", "job.yml", "--stream")
    assert answer.code == 3 and "RunId: streamed" in answer.err and answer.out == b""


def test_logs_prints_what_was_written_so_far(server: FakeServer, yard: Yard) -> None:
    job = FakeJob(job_body("running", "Running"))
    job.files = {"user_logs/std_log.txt": b"loss 0.5\nno last newline"}
    server.state.jobs["running"] = job
    answer = yard("job", "logs", "-n", "running")
    assert (answer.code, answer.out, answer.err) == (0, b"loss 0.5\nno last newline", "")
    job.files = {
        "user_logs/std_log_process_0.txt": b"one\ntwo\n",
        "user_logs/std_log_process_1.txt": b"three\n",
    }
    assert yard("job", "logs", "running").out == b"[0] one\n[0] two\n[1] three\n"
    assert yard("job", "logs", "running", "--rank", 1).out == b"three\n"
    answer = yard("job", "logs", "running", "--rank", 2)
    assert answer.code == 2 and "ranks that have: 0, 1" in answer.err
    job.files = {}
    assert yard("job", "logs", "running").out == b""


def test_logs_of_a_job_that_was_preempted_say_which_attempt_they_show(
    server: FakeServer, yard: Yard
) -> None:
    job = FakeJob(job_body("preempted", "Running", attempt=2))
    job.files = {"user_logs/std_log.txt": b"again\n"}
    server.state.jobs["preempted"] = job
    answer = yard("job", "logs", "-n", "preempted")
    assert answer.out == b"again\n"
    assert "attempt 2, the last one" in answer.err and "--path attempt-1`" in answer.err


def test_logs_that_are_followed_end_with_the_jobs_code(server: FakeServer, yard: Yard) -> None:
    job = FakeJob(job_body("streamed", "Failed", exit_code=3))
    job.may_end.set()
    server.state.jobs["streamed"] = job
    assert yard("job", "logs", "-n", "streamed", "--follow").code == 3


def test_list_pages_until_it_has_enough(server: FakeServer, yard: Yard, jobs: list[str]) -> None:
    listed = json.loads(yard("job", "list", "-o", "json").out)
    assert [job["name"] for job in listed] == jobs[::-1]
    listed = json.loads(yard("job", "list", "-o", "json", "-r", 5).out)
    assert [job["name"] for job in listed] == jobs[:2:-1]
    lines = yard("job", "list", "--experiment-name", "digits").text.splitlines()
    assert lines[0].split() == [
        "NAME",
        "STATUS",
        "EXPERIMENT",
        "DISPLAY",
        "NAME",
        "CREATED",
        "TOOK",
    ]
    assert lines[2].split()[:3] == ["job-7", "Completed", "digits"]
    assert yard("job", "list", "--experiment-name", "other").out == b""


def test_a_list_says_what_jobs_wait_for(server: FakeServer, yard: Yard) -> None:
    reason = "needs 1 node; 0 of 4 nodes of `local` are free; in use by `first` of `ann`"
    server.state.jobs["second"] = FakeJob(job_body("second", "Queued", waiting=reason))
    heading, _, row = yard("job", "list").text.splitlines()
    assert "WAITING FOR" in heading and reason in row


@pytest.mark.parametrize("form", [["-n", "job-1"], ["job-1"], ["--name", "job-1"]])
def test_outputs_of_show(server: FakeServer, yard: Yard, jobs: list[str], form: list[str]) -> None:
    document = json.loads(yard("job", "show", *form, "-o", "json").out)
    link = document["services"]["Studio"]["endpoint"]
    assert link.startswith("http://") and link.endswith("/ui/workspaces/default/jobs/job-1")
    body = {**server.state.jobs["job-1"].body, "services": document["services"]}
    assert document == body
    assert yaml.safe_load(yard("job", "show", *form, "-o", "yaml").out) == body
    assert yard("job", "show", *form, "-o", "none").out == b""
    assert yard("job", "show", *form, "-o", "tsv").out.startswith(b"job-1\tjob-1-display\t")
    assert yard("job", "show", *form, "-g", "x", "--subscription", "y", "-w", "z").code == 0
    assert server.state.requests[-1] == ("GET", "/v1/workspaces/z/jobs/job-1")


def test_page_of_a_job(server: FakeServer, yard: Yard) -> None:
    error = {"code": "failed", "message": "rank 1 exited with 7", "hint": "see its log"}
    server.state.jobs["a"] = FakeJob(
        job_body("a", "Failed", error=error, waiting="needs 2 nodes", exit_code=7)
    )
    text = yard("job", "show", "a").text
    for line in (
        "Status        Failed", "Waiting for   needs 2 nodes", "Exit code     7",
        "Compute       local, 2 nodes of 4 processes", "  Running  12 s", "  loss  0.25",
        "  digits:1", "error: rank 1 exited with 7", "hint: see its log",
    ):  # fmt: skip
        assert line in text
    assert "\x1b" not in text


def test_what_others_wrote_says_nothing_to_the_terminal(server: FakeServer, yard: Yard) -> None:
    evil = "\x1b]0;title\x07"
    server.state.jobs["a"] = FakeJob(
        job_body("a", display_name=evil, tags={evil: evil}, notices=[evil], params={"x": evil})
    )
    text = yard("job", "show", "a").text
    assert "\x1b" not in text and "\x07" not in text and text.count("�]0;title�") == 5


@pytest.mark.parametrize("verb", ["show", "list", "compare", "stream"])
@pytest.mark.parametrize("form", tables.OUTPUTS)
def test_no_form_of_output_lets_others_control_the_terminal(
    server: FakeServer, yard: Yard, verb: str, form: str
) -> None:
    evil = "größe\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2066\x7f"
    job = job_body("a", display_name=evil, tags={evil: evil}, waiting=evil, notices=[evil])
    notices = [{"kind": "notice", "message": evil}, {"kind": "waiting", "message": evil}]
    server.state.jobs["a"] = FakeJob(job, [Part(fields) for fields in notices])
    server.state.jobs["a"].may_end.set()
    server.state.jobs["b"] = FakeJob(job_body("b"))
    names = {"list": [], "compare": ["a", "b"]}.get(verb, ["-n", "a"])
    answer = yard("job", verb, *names, *(() if verb == "stream" else ("-o", form)))
    for text in (answer.text, answer.err):
        assert text.replace("\n", "").replace("\t", "").isprintable(), text
    if verb == "show" and form in ("json", "yaml"):
        assert yaml.safe_load(answer.out)["display_name"] == evil


def test_a_narrow_table_keeps_its_meaning(server: FakeServer, yard: Yard) -> None:
    moment = "2026-11-21 22:47:11"
    cut = [tables._cut(moment, width) for width in (19, 17, 12, 8)]
    assert cut == [moment, "2026-11-21 22:47 ", "2026-11-21  ", "2026-11…"]
    server.state.jobs["a"] = FakeJob(job_body("a", display_name="a"))
    server.state.jobs["b"] = FakeJob(job_body("b", display_name="best"))
    listed = yard("job", "list", "-o", "tsv").text.splitlines()
    assert {line.split("\t")[0]: line.split("\t")[3] for line in listed} == {"a": "", "b": "best"}


def test_a_job_whose_json_cannot_be_kept_is_there(server: FakeServer, yard: Yard) -> None:
    Path("job.yml").write_text("command: 'true'\n")
    answer = yard(
        "job", "create", "-f", "job.yml", "-n", "mine", "-a", "/proc/no.json", "-o", "json"
    )
    assert answer.code == 0 and json.loads(answer.out)["name"] == "mine"
    assert "warning: the job was submitted, but `/proc/no.json` can't be written" in answer.err
    assert yard("job", "create", "-f", "job.yml", "-n", "other", "-a", "größe.json").code == 0
    assert json.loads(Path("größe.json").read_text(encoding="utf-8"))["name"] == "other"


def test_a_job_submitted_twice_says_since_when_it_exists(server: FakeServer, yard: Yard) -> None:
    Path("job.yml").write_text("command: 'true'\nname: mine\n")
    first, second = (yard("job", "create", "-f", "job.yml") for _ in range(2))
    assert (first.code, second.code, "warning" in first.err) == (0, 0, False)
    assert "nothing was submitted: job `mine` exists with the same content since 2026-01-01" in (
        second.err
    )
    assert "is Queued; for another run" in second.err


def test_names_in_any_script_are_aligned(server: FakeServer, yard: Yard) -> None:
    server.state.jobs["a"] = FakeJob(
        job_body("a", params={"lr": "1", "学习": "2", "o\u0308l": "3"})
    )
    lines = yard("job", "show", "a").text.splitlines()
    assert {"  lr    1", "  学习  2", "  o\u0308l    3"} <= set(lines)


def test_jobs_with_the_names_of_our_columns_are_compared(server: FakeServer, yard: Yard) -> None:
    for name, processes in (("what", 4), ("values", 5), ("different", 6)):
        server.state.jobs[name] = FakeJob(job_body(name, processes_per_node=processes))
    lines = yard("job", "compare", "what", "values", "different", "-o", "tsv").text.splitlines()
    assert "processes_per_node\t4\t5\t6\t≠" in lines
    same = next(line for line in lines if line.startswith("command\t"))
    assert not same.endswith("≠")


def test_cancel(server: FakeServer, yard: Yard, jobs: list[str]) -> None:
    assert yard("job", "cancel", "job-1").text == "job-1  CancelRequested\n"


def test_what_a_bundle_replaces_is_told(server: FakeServer, yard: Yard, jobs: list[str]) -> None:
    server.state.jobs["job-1"].files = {f"outputs/{n}.txt": b"small" for n in range(20)}
    assert yard("job", "download", "job-1").err == ""
    assert "20 of these files were there before" in yard("job", "download", "job-1").err
    assert any(path.endswith("/bundle") for _, path in server.state.requests)


def test_download(server: FakeServer, yard: Yard, jobs: list[str]) -> None:
    job = server.state.jobs["job-1"]
    job.files = {"outputs/a b#%?.pt": b"weights", "user_logs/std_log.txt": b"\xff"}
    job.outputs = {"model": {"sub/m.bin": b"m"}, "other": {"o": b""}}
    assert yard("job", "download", "job-1", "--path", "outputs/a b#%?.pt", "-p", "one").code == 0
    assert [path.name for path in Path("one").rglob("*") if path.is_file()] == ["a b#%?.pt"]
    wrong = yard("job", "download", "job-1", "--path", "outputs/a b.pt")
    assert wrong.code == 2 and "has no file `outputs/a b.pt`\nhint: did you mean" in wrong.err
    first, second = (yard("job", "download", "-n", "job-1", "-p", "to") for _ in range(2))
    assert first.code == second.code == 0 and "replaced" not in first.err
    assert "2 of these files were there before and are replaced, such as `to/" in second.err
    # What no download replaces is not counted, nor read.
    Path("to/artifacts/mine").write_bytes(b"mine")
    Path("to/artifacts/outputs/a b#%?.pt").unlink()
    third = yard("job", "download", "-n", "job-1", "-p", "to")
    assert "1 of these files were there before and are replaced, such as" in third.err
    assert "`to/artifacts/user_logs/std_log.txt`" in third.err
    assert Path("to/artifacts/outputs/a b#%?.pt").read_bytes() == b"weights"
    assert not Path("to/named-outputs").exists()
    assert yard("job", "download", "job-1", "--output-name", "model").code == 0
    assert Path("named-outputs/model/sub/m.bin").read_bytes() == b"m"
    assert not Path("artifacts").exists() and not Path("named-outputs/other").exists()
    assert yard("job", "download", "job-1", "--all").code == 0
    assert Path("artifacts/user_logs/std_log.txt").read_bytes() == b"\xff"
    assert Path("named-outputs/other/o").exists()
    answer = yard("job", "download", "job-1", "--output-name", "nope")
    assert answer.code == 2 and "hint: it has: model, other" in answer.err


def test_a_servers_paths_stay_in_the_folder(
    server: FakeServer, yard: Yard, jobs: list[str]
) -> None:
    server.state.jobs["job-1"].files = {"../../escaped": b"x"}
    answer = yard("job", "download", "job-1", "-p", "to")
    assert answer.code == 2 and "leads out of the folder" in answer.err
    assert not Path("../escaped").exists() and not Path("escaped").exists()


def test_compute(server: FakeServer, yard: Yard) -> None:
    Path("c.yml").write_text("name: gpu\ntype: amlcompute\nmax_instances: 2\n")
    assert yard("compute", "create", "-f", "c.yml", "--max-instances", 4).code == 0
    assert server.state.computes["gpu"] == {"name": "gpu", "type": "amlcompute", "max_instances": 4}
    created = yard(
        "compute", "create", "-n", "cpu", "--type", "amlcompute", "--size", "s", "-o", "json"
    )
    answer = {"name": "cpu", "type": "amlcompute", "size": "s", "created_at": CREATED_AT}
    assert json.loads(created.out) == answer
    assert yard("compute", "list", "-o", "tsv").text.startswith("gpu\tamlcompute\t\t\t4\t")
    deletion = yard("compute", "delete", "cpu")
    assert deletion.code == 2 and "--yes" in deletion.err and "cpu" in server.state.computes
    assert yard("compute", "delete", "-n", "cpu", "--yes").code == 0
    assert list(server.state.computes) == ["gpu"]


def test_model(server: FakeServer, yard: Yard) -> None:
    Path("m.pt").write_bytes(b"weights")
    assert yard("model", "create", "-n", "digits", "-p", "m.pt").code == 0
    path = server.state.models[0]["path"]
    assert server.state.manifests[path.removeprefix("snapshot:")]["files"][0]["path"] == "m.pt"
    remote = "azureml://jobs/a/outputs/artifacts/paths/outputs/m.pt"
    assert yard("model", "create", "-n", "digits", "-p", remote).code == 0
    assert server.state.models[1]["path"] == remote
    shown = yard("model", "show", "digits:2", "-o", "json")
    assert json.loads(shown.out)["version"] == "2"
    assert yard("model", "download", "-n", "digits", "-v", "1", "-p", "to").code == 0
    assert Path("to/digits/model.pt").read_bytes() == b"weights"


def test_workspace_config_is_found_again(
    server: FakeServer, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert yard("workspace", "config", "-w", "vision").code == 0
    assert json.loads(Path(".azureml/config.json").read_text()) == {
        "subscription_id": "0" * 8,
        "resource_group": "torchyard",
        "workspace_name": "vision",
    }
    Path("deep/er").mkdir(parents=True)
    monkeypatch.chdir("deep/er")
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == "vision"
    monkeypatch.setenv("TORCHYARD_WORKSPACE", "speech")
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == "speech"


def test_an_example_can_be_copied_whole(yard: Yard) -> None:
    for verb, end in (
        (("online-deployment", "drift"), " --data digits-train:1 --since 24h\n"),
        (("environment", "shell"), ' -- python -c "import torch"\n'),
    ):
        text = yard(*verb, "--help").text
        assert end in text and "\b" not in text, text


def test_help_of_everything(yard: Yard) -> None:
    from torchyard.cli.help_page import NOUNS, help_page

    assert yard("--help").text == yard().text == help_page()
    for noun in NOUNS:
        page = yard(noun, "--help")
        assert page.code == 0
        lines = page.text.partition("Commands:\n")[2].splitlines()
        # What is indented further is the rest of a sentence.
        verbs = [line.split()[0] for line in lines if not line.startswith("   ")]
        assert verbs and "..." not in page.text.partition("Commands:\n")[2]
        for verb in verbs:
            answer = yard(noun, verb, "--help")
            assert answer.code == 0 and "Example: yard" in answer.text
