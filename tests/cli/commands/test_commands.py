"""The verbs, against the real server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace, count_as_built
from eventually import eventually
from torchyard.cli.terminal import tables
from torchyard.client import jobs as client_jobs
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests.to_json import job_json


def test_create_uploads_what_is_missing_and_posts(server: ServedWorkspace, yard: Yard) -> None:
    Path("jobs/src/pkg").mkdir(parents=True)
    Path("jobs/src/train.py").write_text("print(1)")
    Path("jobs/src/pkg/big.bin").write_bytes(b"b" * (2 << 20))
    Path("jobs/src/.amlignore").write_text("*.log\n")
    Path("jobs/src/x.log").write_text("no")
    Path("jobs/data").mkdir()
    Path("jobs/data/x.log").write_text("data keeps its logs")
    Path("jobs/conda.yml").write_text("dependencies:\n  - python=3.11\n  - pip:\n    - torch\n")
    conda_file = yaml.safe_load(Path("jobs/conda.yml").read_text())
    count_as_built(server.services, {"conda_file": conda_file})
    (server.services.datastores.root(server.name, "workspaceblobstore") / "b").mkdir(parents=True)
    Path("jobs/job.yml").write_text(
        "command: python train.py ${{inputs.data}}\n"
        "code: src\n"
        "environment: {conda_file: conda.yml}\n"
        "inputs:\n"
        "  data: {path: ./data}\n"
        "  one: {type: uri_file, path: 'file:data/x.log'}\n"
        "  far: {path: 'azureml://datastores/workspaceblobstore/paths/b'}\n"
        "  lr: 1e-3\n"
        "resources: {instance_count: 2}\n"
    )
    arguments = ("job", "create", "-f", "jobs/job.yml", "--set", "inputs.epochs=3", "-o", "json")
    before = len(server.requests)
    answer = yard(*arguments, "--set", "resources.instance_count=4", "--name", "mine")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["name"] == "mine"
    assert server.requests[before][1].endswith("/validate"), "nothing is sent before it is valid"
    posted = server.document("mine")
    code = _snapshot(server, posted["code"])
    assert [file["path"] for file in code] == [".amlignore", "pkg/big.bin", "train.py"]
    data = _snapshot(server, posted["inputs"]["data"]["path"])
    assert [file["path"] for file in data] == ["x.log"]
    assert _snapshot(server, posted["inputs"]["one"]["path"]) == data
    assert posted["inputs"]["far"]["path"] == "azureml://datastores/workspaceblobstore/paths/b"
    assert posted["inputs"]["epochs"] == 3 and posted["inputs"]["lr"] == "1e-3"
    assert posted["resources"] == {"instance_count": 4}
    assert posted["environment"]["conda_file"]["dependencies"][0] == "python=3.11"
    assert posted["experiment_name"] == "here"
    # The second time the server knows everything: one request a snapshot, no blob.
    before = len(server.requests)
    assert yard(*arguments).code == 0
    assert [path.rsplit("/", 1)[-1] for _, path in server.requests[before:]] == [
        "validate", "snapshots", "snapshots", "jobs",
    ]  # fmt: skip


def _snapshot(server: ServedWorkspace, path: str) -> list[dict[str, Any]]:
    """The files of what was sent."""
    with server.client() as client:
        id = path.removeprefix("snapshot:").partition("/")[0]
        files: list[dict[str, Any]] = client.transport.get(
            f"/v1/workspaces/{server.name}/snapshots/{id}"
        )["files"]
    return files


def test_create_streams_and_ends_with_the_jobs_code(server: ServedWorkspace, yard: Yard) -> None:
    Path("job.yml").write_text("command: x\nenvironment: python\nname: streamed\n")
    server.start("streamed", command="x").fail(3)
    answer = yard("job", "create", "-f", "job.yml", "--stream")
    assert answer.code == 3 and "RunId: streamed" in answer.err and answer.out == b""


def test_output_of_others_has_no_control_characters(server: ServedWorkspace, yard: Yard) -> None:
    written = b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m 10 %\r20 %\n"
    for name in ("mine", "theirs"):
        server.start(name).log(written)
    with server.services.db.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET owner = 'eve' WHERE name = 'theirs'")
    cleaned = yard("job", "logs", "theirs").out
    assert b"\x1b[31mred\x1b[0m 10 %\r20 %\n" in cleaned and b"\x07" not in cleaned
    assert b"\x1b[2J" not in cleaned and b"\x1b]" not in cleaned
    assert yard("job", "logs", "theirs", "--raw").out == written
    assert yard("job", "logs", "mine").out == written


def test_logs_prints_what_was_written_so_far(server: ServedWorkspace, yard: Yard) -> None:
    server.start("one").log(b"loss 0.5\nno last newline")
    answer = yard("job", "logs", "-n", "one")
    assert (answer.code, answer.out, answer.err) == (0, b"loss 0.5\nno last newline", "")
    job = server.start("two")
    assert yard("job", "logs", "two").out == b""
    job.log(b"one\ntwo\n", "std_log_process_0.txt")
    job.log(b"three\n", "std_log_process_1.txt")
    assert yard("job", "logs", "two").out == b"[0] one\n[0] two\n[1] three\n"
    assert yard("job", "logs", "two", "--rank", 1).out == b"three\n"
    answer = yard("job", "logs", "two", "--rank", 2)
    assert answer.code == 2 and "ranks that have: 0, 1" in answer.err


def test_logs_of_a_job_that_was_preempted_say_which_attempt_they_show(
    server: ServedWorkspace, yard: Yard
) -> None:
    first = server.start("preempted").run()
    assert yard("job", "preempt", "-n", "preempted").code == 0
    first.fail(1, "preempted")
    server.launched("preempted", 2).log(b"again\n")
    answer = yard("job", "logs", "-n", "preempted")
    assert answer.out == b"again\n"
    assert "attempt 2, the last one" in answer.err and "--path attempt-1`" in answer.err


def test_logs_that_are_followed_end_with_the_jobs_code(server: ServedWorkspace, yard: Yard) -> None:
    server.start("streamed").fail(3)
    assert yard("job", "logs", "-n", "streamed", "--follow").code == 3


def test_list_pages_until_it_has_enough(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_jobs, "_PAGE", 2)
    names = [f"job-{number}" for number in range(5)]
    for name in names:
        server.completed(name, experiment_name="digits")
    listed = json.loads(yard("job", "list", "-o", "json").out)
    assert [job["name"] for job in listed] == names[::-1]
    listed = json.loads(yard("job", "list", "-o", "json", "-r", 3).out)
    assert [job["name"] for job in listed] == names[:1:-1]
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
    assert lines[2].split()[:3] == ["job-4", "Completed", "digits"]
    assert yard("job", "list", "--experiment-name", "other").out == b""


def test_what_a_job_waits_for_is_in_the_list_and_on_its_page(
    server: ServedWorkspace, yard: Yard
) -> None:
    server.start("first", resources={"instance_count": 4})
    with server.client() as client:
        client.jobs.create({"name": "second", "command": "x", "environment": "python"})
    eventually(lambda: server.job("second").status is Status.QUEUED, "the job to be queued")
    reason = "needs 1 node; 0 of 4 nodes of `local` are free; in use by `first` of `"
    heading, _, row, _ = yard("job", "list").text.splitlines()
    assert "WAITING FOR" in heading and reason in row
    assert f"Waiting for   {reason}" in yard("job", "show", "second").text


@pytest.mark.parametrize("form", [["-n", "job-1"], ["job-1"], ["--name", "job-1"]])
def test_outputs_of_show(server: ServedWorkspace, yard: Yard, form: list[str]) -> None:
    server.completed("job-1", display_name="first")
    document = json.loads(yard("job", "show", *form, "-o", "json").out)
    link = document["services"]["Studio"]["endpoint"]
    assert link == f"{server.url}/ui/workspaces/{server.name}/jobs/job-1"
    body = job_json(server.services, server.job("job-1"))
    assert document == {**body, "services": document["services"]}
    assert yaml.safe_load(yard("job", "show", *form, "-o", "yaml").out) == document
    assert yard("job", "show", *form, "-o", "none").out == b""
    assert yard("job", "show", *form, "-o", "tsv").out.startswith(b"job-1\tfirst\t")
    assert yard("job", "show", *form, "-g", "x", "--subscription", "y", "-w", "z").code == 2
    assert server.requests[-1] == ("GET", "/v1/workspaces/z/jobs/job-1")


def test_page_of_a_job(server: ServedWorkspace, yard: Yard) -> None:
    ranks = {"type": "pytorch", "process_count_per_instance": 4}
    job = server.start("a", distribution=ranks).run()
    job.record(loss=0.25)
    job.write("outputs/m.pt", b"weights")
    path = "azureml://jobs/a/outputs/artifacts/paths/outputs/m.pt"
    assert yard("model", "create", "-n", "digits", "-p", path).code == 0
    server.advance(12)
    job.fail(7)
    text = yard("job", "show", "a").text
    for line in (
        "Status        Failed", "Exit code     7", "Compute       local, 1 node of 4 processes",
        "  loss  0.25", "  digits:1", "error: rank 0 exited with code 7",
    ):  # fmt: skip
        assert line in text
    assert re.search(r"\n  Running +12 s\n", text)
    assert "\x1b" not in text


def test_what_others_wrote_says_nothing_to_the_terminal(
    server: ServedWorkspace, yard: Yard
) -> None:
    evil = "\x1b]0;title\x07"
    job = server.start("a", display_name=evil, tags={evil: evil})
    job.notice(evil)
    job.record({"x": evil})
    text = yard("job", "show", "a").text
    assert "\x1b" not in text and "\x07" not in text and text.count("�]0;title�") == 5


@pytest.mark.parametrize("verb", ["show", "list", "compare", "stream"])
def test_no_form_of_output_lets_others_control_the_terminal(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    evil = "größe\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2066\x7f"
    monkeypatch.setattr(waiting_reasons, "describe", lambda services, job: evil)
    job = server.start("a", display_name=evil, tags={evil: evil})
    job.notice(evil)
    job.complete()
    server.completed("b")
    names = {"list": [], "compare": ["a", "b"]}.get(verb, ["-n", "a"])
    for form in tables.OUTPUTS:
        answer = yard("job", verb, *names, *(() if verb == "stream" else ("-o", form)))
        for text in (answer.text, answer.err):
            assert text.replace("\n", "").replace("\t", "").isprintable(), text
        if verb == "show" and form in ("json", "yaml"):
            assert yaml.safe_load(answer.out)["display_name"] == evil


def test_a_narrow_table_keeps_its_meaning(server: ServedWorkspace, yard: Yard) -> None:
    moment = "2026-11-21 22:47:11"
    cut = [tables._cut(moment, width) for width in (19, 17, 12, 8)]
    assert cut == [moment, "2026-11-21 22:47 ", "2026-11-21  ", "2026-11…"]
    server.start("a")
    server.start("b", display_name="best")
    listed = yard("job", "list", "-o", "tsv").text.splitlines()
    assert {line.split("\t")[0]: line.split("\t")[3] for line in listed} == {"a": "", "b": "best"}


def test_a_job_whose_json_cannot_be_kept_is_there(server: ServedWorkspace, yard: Yard) -> None:
    Path("job.yml").write_text("command: 'true'\nenvironment: python\n")
    answer = yard(
        "job", "create", "-f", "job.yml", "-n", "mine", "-a", "/proc/no.json", "-o", "json"
    )
    assert answer.code == 0 and json.loads(answer.out)["name"] == "mine"
    assert "warning: the job was submitted, but `/proc/no.json` can't be written" in answer.err
    assert yard("job", "create", "-f", "job.yml", "-n", "other", "-a", "größe.json").code == 0
    assert json.loads(Path("größe.json").read_text(encoding="utf-8"))["name"] == "other"


def test_a_job_submitted_twice_says_since_when_it_exists(
    server: ServedWorkspace, yard: Yard
) -> None:
    Path("job.yml").write_text("command: 'true'\nenvironment: python\nname: mine\n")
    first = yard("job", "create", "-f", "job.yml")
    server.launched("mine")
    second = yard("job", "create", "-f", "job.yml")
    assert (first.code, second.code, "warning" in first.err) == (0, 0, False)
    assert "nothing was submitted: job `mine` exists with the same content since 2026-01-01" in (
        second.err
    )
    assert "is Starting; for another run" in second.err


def test_names_in_any_script_are_aligned(server: ServedWorkspace, yard: Yard) -> None:
    server.start("a").record({"lr": "1", "学习": "2", "o\u0308l": "3"})
    lines = yard("job", "show", "a").text.splitlines()
    assert {"  lr    1", "  学习  2", "  o\u0308l    3"} <= set(lines)


def test_jobs_with_the_names_of_our_columns_are_compared(
    server: ServedWorkspace, yard: Yard
) -> None:
    for name, processes in (("what", 4), ("values", 5), ("different", 6)):
        ranks = {"type": "pytorch", "process_count_per_instance": processes}
        server.start(name, distribution=ranks)
    lines = yard("job", "compare", "what", "values", "different", "-o", "tsv").text.splitlines()
    assert "processes_per_node\t4\t5\t6\t≠" in lines
    same = next(line for line in lines if line.startswith("command\t"))
    assert not same.endswith("≠")


def test_cancel(server: ServedWorkspace, yard: Yard) -> None:
    server.start("job-1").run()
    assert yard("job", "cancel", "job-1").text == "job-1  CancelRequested\n"


def test_what_a_bundle_replaces_is_told(server: ServedWorkspace, yard: Yard) -> None:
    job = server.start("job-1")
    for number in range(20):
        job.write(f"outputs/{number}.txt", b"small")
    assert yard("job", "download", "job-1").err == ""
    assert "20 of these files were there before" in yard("job", "download", "job-1").err
    assert server.requests[-1][1].endswith("/bundle")


def test_download(server: ServedWorkspace, yard: Yard) -> None:
    job = server.start("job-1", outputs={"model": {}, "other": {}})
    job.write("outputs/a b#%?.pt", b"weights")
    job.log(b"\xff")
    job.write_output("model", "sub/m.bin", b"m")
    job.write_output("other", "o", b"")
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
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start("job-1")
    listed = [artifacts.Artifact("../../escaped", 1)]
    monkeypatch.setattr(artifacts, "list_of", lambda services, job: listed)
    answer = yard("job", "download", "job-1", "-p", "to")
    assert answer.code == 2 and "leads out of the folder" in answer.err
    assert not Path("../escaped").exists() and not Path("escaped").exists()


def test_compute(server: ServedWorkspace, yard: Yard) -> None:
    Path("c.yml").write_text("name: gpu\ntype: amlcompute\nmax_instances: 2\n")
    assert yard("compute", "create", "-f", "c.yml", "--max-instances", 4).code == 0
    created = yard(
        "compute",
        "create",
        "-n",
        "cpu",
        "--type",
        "amlcompute",
        "--size",
        "STANDARD_DS3_V2",
        "-o",
        "json",
    )
    made = json.loads(created.out)
    assert (made["name"], made["type"], made["size"]) == ("cpu", "amlcompute", "STANDARD_DS3_V2")
    listed = yard("compute", "list", "-o", "tsv").text.splitlines()
    assert any(line.startswith("gpu\tamlcompute\t\t0\t4\t") for line in listed)
    deletion = yard("compute", "delete", "cpu")
    assert deletion.code == 2 and "--yes" in deletion.err
    assert yard("compute", "show", "cpu").code == 0
    assert yard("compute", "delete", "-n", "cpu", "--yes").code == 0
    assert yard("compute", "show", "cpu").code == 2


def test_model(server: ServedWorkspace, yard: Yard) -> None:
    Path("m.pt").write_bytes(b"weights")
    assert yard("model", "create", "-n", "digits", "-p", "m.pt").code == 0
    server.start("a").write("outputs/m.pt", b"others")
    remote = "azureml://jobs/a/outputs/artifacts/paths/outputs/m.pt"
    assert yard("model", "create", "-n", "digits", "-p", remote).code == 0
    shown = json.loads(yard("model", "show", "digits:2", "-o", "json").out)
    assert (shown["version"], shown["source"], shown["job"]) == (2, remote, "a")
    assert yard("model", "download", "-n", "digits", "-v", "1", "-p", "to").code == 0
    assert Path("to/digits/m.pt").read_bytes() == b"weights"


def test_workspace_config_is_found_again(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHYARD_WORKSPACE")
    assert yard("workspace", "config", "-w", server.name).code == 0
    shown = json.loads(yard("workspace", "show", "-n", server.name, "-o", "json").out)
    assert json.loads(Path(".azureml/config.json").read_text()) == {
        "subscription_id": shown["subscription_id"],
        "resource_group": shown["resource_group"],
        "workspace_name": server.name,
    }
    Path("deep/er").mkdir(parents=True)
    monkeypatch.chdir("deep/er")
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == server.name
    monkeypatch.setenv("TORCHYARD_WORKSPACE", "default")
    assert json.loads(yard("workspace", "show", "-o", "json").out)["name"] == "default"


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
