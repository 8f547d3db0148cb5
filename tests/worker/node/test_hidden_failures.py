"""Commands of the shell that fail while the job goes on are notices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard.worker.files.thin_environment import put_hooks
from worker.bench import Bench

SET_E = "; with `set -e` in its first line, the command ends there, and the job fails"
IN_PIPE = "; with `set -eo pipefail` in its first line, the command ends there, and the job fails"
IN_SCRIPT = "; give `script` the option `-e`, or it hides every exit code"
IN_LIST = "; `set -e` ignores what stands before `&&`: end the list with `|| exit 1`"


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """Variables that find a `python` with the hooks of ranks."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    put_hooks(tmp_path / "hooks")
    return {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "hooks")}


def notices(bench: Bench) -> list[str]:
    events = bench.server.events.get(0, [])
    return [event["body"]["message"] for event in events if event["kind"] == "notice"]


def run(bench: Bench, command: str, variables: dict[str, str], **changes: Any) -> list[str]:
    bench.run(bench.plan(command, environment_variables=variables, **changes))
    return notices(bench)


def failed(line: int, code: int, command: str, because: str = "", advice: str = SET_E) -> str:
    because = f" ({because})" if because else ""
    return (
        f"line {line} of the command failed with code {code}, and the job went on: "
        f"`{command}`{because}{advice}"
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "cd dtaa; pyhton prepare.py; true",
            [
                failed(1, 1, "cd dtaa"),
                failed(
                    1,
                    127,
                    "pyhton prepare.py",
                    "`pyhton` does not exist on the node: did you mean `python`?",
                ),
            ],
        ),
        ("# don't\ncp no/such . \\\n  \n\ntrue", [failed(2, 1, "cp no/such .")]),
        ("for i in 1 2; do\n  cp no such\ndone\necho", [failed(2, 1, "cp no such")]),
        ("get() {\n  cp no such\n}\nget\ntrue", [failed(2, 1, "cp no such")]),
        ("get() {\n  cp no such\n  true\n}\nget\ntrue", [failed(2, 1, "cp no such")]),
        ("(\ncd dtaa\nls no-such\n)\ntrue", [failed(2, 1, "cd dtaa"), failed(3, 2, "ls no-such")]),
        ("export SIZE=$(cat no-such); true", [failed(1, 1, "cat no-such")]),
        (
            "{ cp no such; } &\nwait; { cp no more; } | cat",
            [failed(1, 1, "cp no such"), failed(2, 1, "cp no more")],
        ),
        ("cat >x <<END\na\nEND\ncp no such; true", [failed(4, 1, "cp no such")]),
        ("(exit 3)\ntrue", [failed(1, 3, "( exit 3 )")]),
        ("sh -c 'exit 9' &\nwait $!\ntrue", [failed(2, 9, "wait $!")]),
        ("SIZE=$(cat no-such)\ntrue", [failed(1, 1, "cat no-such")]),
        ("eval 'cp no such'; true", [failed(1, 1, "cp no such")]),
        ("get() { cp no such || return 3; }\nget\ntrue", [failed(2, 3, "get")]),
        ("case a in\n a) cp no such; true;;\nesac\ntrue", [failed(2, 1, "cp no such")]),
        ("case $(cat no) in\n *) true;;\nesac\ntrue", [failed(1, 1, "cat no")]),
        ("while read x; do cp no $x; done <<END\na\nEND\ntrue", [failed(1, 1, "cp no $x")]),
        (
            "python - <<END\nraise ValueError('x')\nEND\ntrue",
            [
                failed(
                    1,
                    1,
                    "python - <<END raise ValueError('x') END",
                    "ValueError: x (<stdin> line 1)",
                )
            ],
        ),
        (
            "env A=1 pyhton x; true",
            [
                failed(
                    1,
                    127,
                    "env A=1 pyhton x",
                    "`pyhton` does not exist on the node: did you mean `python`?",
                )
            ],
        ),
        (
            "true\nscript -qc 'cp no such' /dev/null\ntrue",
            [failed(2, 1, "cp no such", "", IN_SCRIPT)],
        ),
        ("true\nscript -qec 'cp no such' /dev/null; true", [failed(2, 1, "cp no such")]),
        ("bash -c 'cd dtaa; true'", [failed(1, 1, "cd dtaa")]),
        ("exec /bin/bash -lc 'true\ncp no such\ntrue'", [failed(2, 1, "cp no such")]),
        ('env A=1 bash -xc "cd no && ls; true"', [failed(1, 1, "cd no", "", IN_LIST)]),
        ("bash -c 'cat no-such | wc -l; true'", [failed(1, 1, "cat no-such", "", IN_PIPE)]),
        ("bash -c 'cat no-such | wc -l'", [failed(1, 1, "cat no-such", "", IN_PIPE)]),
        ("timeout 60 bash -lc 'cat no | sort | wc -l'", [failed(1, 1, "cat no", "", IN_PIPE)]),
        ("bash -c 'cat no-such | wc -l || true'", []),
        ("bash -c 'echo a | grep -c b | wc -l'", []),
        ("bash -c 'echo a | wc -l'", []),
        (
            "bash -c 'cd .; pyhton x; true'",
            [
                failed(
                    1,
                    127,
                    "pyhton x",
                    "`pyhton` does not exist on the node: did you mean `python`?",
                )
            ],
        ),
        (
            "sh -c 'pyhton x; true'",
            [
                "rank 0 succeeded, but a program was not found: `pyhton` does not exist on the "
                "node: did you mean `python`?"
            ],
        ),
    ],
)
def test_a_command_that_failed_is_told_with_its_line(
    bench: Bench, programs: dict[str, str], command: str, expected: list[str]
) -> None:
    assert run(bench, command, programs) == expected
    assert bench.exit() == {"exit_code": 0, "error": None}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat no-such | wc -l", [failed(1, 1, "cat no-such", "", IN_PIPE)]),
        (
            "for i in 1 2; do\n cat no-such |\n wc -l\ndone\ncp no such | cat | cat; true",
            [
                failed(2, 1, "cat no-such", "", IN_PIPE),
                failed(5, 1, "cp no such", "", IN_PIPE),
            ],
        ),
        ("pyhton a.py 2>&1 | tee log; true", None),
        ("cat no-such | grep x; true", [failed(1, 1, "cat no-such", "", IN_PIPE)]),
        (
            "set -o pipefail\ncat no-such | cat | wc -l\nif cat no | cat; then true; fi; true",
            [failed(2, 1, "cat no-such", "", IN_PIPE)],
        ),
        ("set -o pipefail\ntrue | cat no-such\ntrue", [failed(2, 1, "cat no-such")]),
        ("cd no-such && ls; python -c 1", [failed(1, 1, "cd no-such", "", IN_LIST)]),
        (
            "if true; then\n mkdir -p a && cp no such && ls\nfi\ntrue",
            [failed(2, 1, "cp no such", "", IN_LIST)],
        ),
        (
            "python no-such.py & wait",
            ["rank 0 succeeded, but a script was not found: `no-such.py`"],
        ),
        ("sh no-such.sh &\nwait", ["rank 0 succeeded, but a script was not found: `no-such.sh`"]),
    ],
)
def test_what_fails_in_a_pipe_before_and_and_in_the_background_is_told(
    bench: Bench, programs: dict[str, str], command: str, expected: list[str] | None
) -> None:
    messages = run(bench, command, programs)
    if expected is None:
        (notice,) = messages
        assert "`pyhton a.py 2>&1` (`pyhton` does not exist on the node: did you" in notice
        assert notice.endswith(IN_PIPE)
    else:
        assert messages == expected
    assert bench.exit() == {"exit_code": 0, "error": None}


@pytest.mark.parametrize(
    "command",
    [
        "false || true; ! true; if false; then true; fi; while false; do true; done; true",
        "[ -f no ]; grep -q x /dev/null; ((0)); diff /dev/null /bin/sh >/dev/null; true",
        "yes | head -1; sleep 60 & kill $!; wait $!; true",
        "trap 'echo own' ERR; false; true",
        "set -e; false || true; true",
        "echo 'bash: line 1: cat: no command not found'",
        # A script of the job's own may handle what fails in it.
        "bash -c 'false; true'; true",
        "bash -c 'cd no || true; if cd no; then true; fi'",
        "sh -c 'pyhton a || true'",
        "pyhton a.py || true",
        "(cp no such; true) || true; [ -f no ] && true; true",
        'if [ "$(cat no)" = x ]; then true; fi; true',
        "get() { cp no such; true; }; get || true; if get; then true; fi; SIZE=$(get) || true",
        "cp no such; code=$?; true",
        "cd no && ls || true; { cd no && ls; } || true; if cd no && ls; then true; fi; true",
        "cat no | cat || true; if cat no | grep x; then true; fi; ! cat no | cat; true",
        "until cat no | cat; do true; done\nwhile\n cd no && ls\ndo true; done\ntrue",
        "cd no && ls; echo $?; cat no | cat; echo ${PIPESTATUS[0]}; true",
        "python -c \"print('x' * 200000)\" | head -c 1; true",
        "python -c \"print('x' * 200000, flush=True)\" | head -c 1",
        "cat <<END | cat; true\nfalse && b | c\nEND",
        "cp no such 2>/dev/null\nif [ $? != 0 ]; then true; fi\ntrue",
    ],
)
def test_what_is_handled_or_answers_a_question_is_not_told(
    bench: Bench, programs: dict[str, str], command: str
) -> None:
    assert run(bench, command, programs) == []


def test_a_pipe_at_the_end_keeps_its_exit_code_and_last_argument(
    bench: Bench, programs: dict[str, str]
) -> None:
    command = (
        "mkdir a && echo $_; [[ ab =~ (.)b ]]; echo ${BASH_REMATCH[1]}; set -o pipefail\n"
        "true \\\n | sh -c 'exit 7' # the last"
    )
    assert run(bench, command, programs) == []
    assert bench.exit()["exit_code"] == 7
    assert bench.server.logs["user_logs/std_log.txt"].decode() == "a\na\n"


def test_the_job_s_own_shell_is_left_as_it_is(bench: Bench, programs: dict[str, str]) -> None:
    command = (
        "set -x; false; echo $?:${BASH_ENV-unset}:$LINENO; trap -p EXIT\n"
        "bash -c 'false; echo ${BASH_ENV-unset}; trap -p'\nfalse\ntrue"
    )
    notice = failed(3, 1, "false")
    assert run(bench, command, programs) == [notice]
    lines = bench.server.logs["user_logs/std_log.txt"].decode().splitlines()
    assert lines == [
        "+ false",
        "+ echo 1:unset:1",
        "1:unset:1",
        "+ trap -p EXIT",
        "+ bash -c 'false; echo ${BASH_ENV-unset}; trap -p'",
        "unset",
        "+ false",
        "+ true",
    ]


def test_bash_env_of_the_job_is_still_read(
    bench: Bench, programs: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "own.sh").write_text("false\nset -o pipefail\nOWN=read\n")
    variables = {**programs, "BASH_ENV": "$FOLDER/own.sh", "FOLDER": str(tmp_path)}
    command = "false; echo $OWN; bash -c 'echo $OWN $BASH_ENV'"
    assert run(bench, command, variables) == [failed(1, 1, "false")]
    log = bench.server.logs["user_logs/std_log.txt"].decode().splitlines()
    assert log == ["read", "read $FOLDER/own.sh"]


def test_many_failures_are_counted(bench: Bench, programs: dict[str, str]) -> None:
    command = "".join(f"cp no such{number}\n" for number in range(9)) + "true"
    *first, rest = run(bench, command, programs)
    assert first == [failed(number + 1, 1, f"cp no such{number}") for number in range(5)]
    assert rest == "4 more commands failed, and the job went on"


def test_ranks_that_failed_alike_are_one_notice(bench: Bench, programs: dict[str, str]) -> None:
    (notice,) = run(bench, "cd dtaa; true", programs, processes_per_node=3)
    assert notice.startswith("line 1 of the command failed with code 1 in 3 ranks, and the job ")


def test_a_failure_before_the_one_that_ended_the_job_is_told(
    bench: Bench, programs: dict[str, str]
) -> None:
    (notice,) = run(bench, "cd dtaa\npython train.py", programs)
    assert notice == failed(1, 1, "cd dtaa")
    assert bench.exit()["error"]["code"] == "script_missing"


def test_a_program_that_a_pipe_hides_is_told(bench: Bench, programs: dict[str, str]) -> None:
    (notice,) = run(bench, "pyhton train.py 2>&1 | tee log.txt", programs)
    because = "`pyhton` does not exist on the node: did you mean `python`?"
    assert notice == failed(1, 127, "pyhton train.py 2>&1", because, IN_PIPE)


def in_script(line: int, code: int, command: str, because: str = "", script: str = "r.sh") -> str:
    return failed(line, code, command, because).replace("the command failed", f"`{script}` failed")


PREPARE = "cp no such\npython train.py | cat\npyhton x.py\necho done\n"
ACTIVE = "`conda` does not exist on the node; the job's environment is active already: leave it out"
MISSING = "`pyhton` does not exist on the node: did you mean `python`?"


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("bash r.sh", "r.sh"),
        ("bash -x r.sh 2>&1 | tee log.txt", "r.sh"),
        ("echo start\nbash r.sh --lr 1", "r.sh"),
        ("chmod +x r.sh && ./r.sh", "./r.sh"),
        ("chmod +x r.sh; ./r.sh --lr 1 | tee log.txt; ls", "./r.sh"),
        ("source r.sh; true", "r.sh"),
        ("bash outer.sh; true", "r.sh"),
    ],
)
def test_what_fails_in_a_script_is_told_with_its_line(
    bench: Bench, programs: dict[str, str], command: str, script: str
) -> None:
    files: dict[str, str | bytes] = {
        "r.sh": f"#!/bin/bash\n{PREPARE}",
        "outer.sh": "bash r.sh\necho next\n",
        "train.py": "print(1)",
    }
    messages = run(bench, command, programs, code=bench.server.put_snapshot(files))
    assert bench.exit() == {"exit_code": 0, "error": None}
    assert messages == [
        in_script(2, 1, "cp no such", script=script),
        in_script(4, 127, "pyhton x.py", MISSING, script=script),
    ]


def test_a_python_that_fails_in_a_script_is_told_with_its_error(
    bench: Bench, programs: dict[str, str]
) -> None:
    files: dict[str, str | bytes] = {
        "r.sh": "python t.py\necho done\n",
        "t.py": "raise KeyError('state_dict')",
    }
    (notice,) = run(
        bench, "bash r.sh | tee log.txt", programs, code=bench.server.put_snapshot(files)
    )
    assert notice == in_script(1, 1, "python t.py", "KeyError: 'state_dict' (t.py line 1)")


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("bash r.sh; true || false", "cp no such || echo skipped\ntest -f x\ntrue\n"),
        ("bash r.sh || echo skipped; true", "true\ncp no such\n"),
        ("bash r.sh || echo skipped; true", "set -e\ncp no such\ntrue\n"),
        ("if bash r.sh; then echo yes; fi; true", "exit 3\n"),
        ("bash r.sh", "cp no such\nif [ $? -ne 0 ]; then echo handled; fi\n"),
    ],
)
def test_what_a_script_or_its_caller_handles_is_not_told(
    bench: Bench, programs: dict[str, str], command: str, script: str
) -> None:
    code = bench.server.put_snapshot({"r.sh": script})
    assert run(bench, command, programs, code=code) == []
    assert bench.exit() == {"exit_code": 0, "error": None}


def test_a_script_that_fails_is_told_once(bench: Bench, programs: dict[str, str]) -> None:
    code = bench.server.put_snapshot({"r.sh": "true\ncp no such\n"})
    assert run(bench, "bash r.sh\ntrue", programs, code=code) == [failed(1, 1, "bash r.sh")]


def test_a_traced_command_shows_its_own_steps_only(bench: Bench, programs: dict[str, str]) -> None:
    code = bench.server.put_snapshot({"r.sh": "#!/bin/bash\ntrue\n"})
    command = "chmod +x r.sh\nset -x\nbash r.sh\n./r.sh\nfalse || bash r.sh 1"
    run(bench, command, programs, code=code)
    printed = bench.server.logs["user_logs/std_log.txt"].decode().split("\n")
    assert printed == ["+ bash r.sh", "+ ./r.sh", "+ false", "+ bash r.sh 1", ""]


def test_the_programs_of_a_script_get_none_of_our_variables(
    bench: Bench, programs: dict[str, str]
) -> None:
    code = bench.server.put_snapshot({"r.sh": "! env | grep BASH_ENV\n"})
    for command in ("bash r.sh", "true; bash r.sh", "chmod +x r.sh; ./r.sh; true"):
        assert run(bench, command, programs, code=code) == []
        assert bench.exit()["exit_code"] == 0


def test_what_a_job_has_in_place_of_a_program_is_told(
    bench: Bench, programs: dict[str, str]
) -> None:
    messages = run(bench, "conda activate torch\nmodule load cuda/12\ntrue", programs)
    listed = "`module` does not exist on the node; list what it loads in the job's environment"
    assert messages == [
        failed(1, 127, "conda activate torch", ACTIVE),
        failed(2, 127, "module load cuda/12", listed),
    ]


def test_a_job_that_fails_for_conda_is_told_so(bench: Bench, programs: dict[str, str]) -> None:
    run(bench, "conda run -n torch python train.py", programs)
    assert bench.exit()["error"]["hint"] == ACTIVE


def endings(script: str) -> str:
    return (
        f"`{script}` has Windows line endings, and a shell takes the carriage return at the end of "
        f"each line as part of the last word: convert the file, as `sed -i 's/\\r$//' {script}` "
        "does"
    )


@pytest.mark.parametrize(
    ("command", "script", "text"),
    [
        ("bash b.sh", "b.sh", "set -e\r\npython train.py\r\necho x\r\n"),
        ("bash -x src/b.sh", "src/b.sh", "mkdir out\r\n"),
        ("cd src && . ./b.sh; true", "src/b.sh", "mkdir out\r\n"),
        ("sh b.sh --lr 1\ntrue", "b.sh", "cp no such\r\necho\r\n"),
        ("./b.sh; echo x", "b.sh", "#!/bin/bash\r\necho\r\n"),
        ("chmod +x b.sh; ./b.sh; true", "b.sh", "#!/bin/sh\r\necho\r\n"),
        ("bash -c 'bash b.sh; true'", "b.sh", "mkdir out\r\n"),
    ],
)
def test_a_shell_script_with_windows_line_endings_is_told(
    bench: Bench, programs: dict[str, str], command: str, script: str, text: str
) -> None:
    code = bench.server.put_snapshot({script: text, "train.py": "print(1)"})
    notices = run(bench, command, programs, code=code)
    assert bench.exit() == {"exit_code": 0, "error": None}
    program = "./b.sh" if "./b.sh" in command else script
    assert [notice for notice in notices if "Windows" in notice] == [endings(program)]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("bash b.sh", "set -e\r\npython train.py\r\nexit 3\n"),
        ("bash b.sh", "if true; then\r\n echo\r\nfi\r\n"),
        ("bash b.sh", "python train.py\r\n"),
        ("bash b.sh", "pyhton\r\n"),
        ("sh b.sh", "set -e\r\ntrue\r\n"),
        ("chmod +x b.sh && ./b.sh", "#!/bin/bash\r\ntrue\r\n"),
    ],
)
def test_a_job_that_fails_by_windows_line_endings_says_so(
    bench: Bench, programs: dict[str, str], command: str, text: str
) -> None:
    code = bench.server.put_snapshot({"b.sh": text, "train.py": "print(1)"})
    run(bench, command, programs, code=code)
    assert bench.exit()["error"]["hint"] == endings(command.split()[-1])


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python a.py; true", {"a.py": "#!/usr/bin/env python\r\nprint(1)\r\n"}),
        ("bash b.sh; true", {"b.sh": "echo a.csv\n", "a.csv": "1\r\n"}),
        ("sed -i 's/\\r$//' b.sh; bash b.sh", {"b.sh": "true\r\n"}),
        ("tr -d '\\r' <b.sh | bash; true", {"b.sh": "true\r\n"}),
    ],
)
def test_windows_line_endings_that_no_shell_reads_are_not_told(
    bench: Bench, programs: dict[str, str], command: str, files: dict[str, str]
) -> None:
    code = bench.server.put_snapshot({**files})
    assert run(bench, command, programs, code=code) == []


def test_set_e_names_the_nearest_program(bench: Bench, programs: dict[str, str]) -> None:
    assert run(bench, "set -e\npyhton prepare.py\npython train.py", programs) == []
    error = bench.exit()["error"]
    assert (error["code"], bench.exit()["exit_code"]) == ("command_not_found", 127)
    assert error["hint"] == "`pyhton` does not exist on the node: did you mean `python`?"


def test_set_e_names_the_command_that_failed(bench: Bench, programs: dict[str, str]) -> None:
    assert run(bench, "set -e\nsh -c 'exit 3'\ntrue", programs) == []
    error = bench.exit()["error"]
    assert error["code"] == "rank_failed"
    assert error["message"] == (
        "rank 0 on node 0 exited with code 3: line 2 of the command failed: `sh -c 'exit 3'`"
    )


def test_the_error_of_a_python_stands_beside_its_command(
    bench: Bench, programs: dict[str, str]
) -> None:
    code = bench.server.put_snapshot({"prepare.py": "raise ValueError('no corpus')\n"})
    (notice,) = run(bench, "python prepare.py; true", programs, code=code)
    assert notice == failed(1, 1, "python prepare.py", "ValueError: no corpus (prepare.py line 1)")


def test_an_exit_code_that_a_pipe_hides_is_told(bench: Bench, programs: dict[str, str]) -> None:
    code = bench.server.put_snapshot({"train.py": "import sys\nsys.exit(4)\n"})
    (notice,) = run(bench, "python train.py | cat", programs, code=code)
    because = "sys.exit with code 4 (train.py line 2)"
    assert notice == failed(1, 4, "python train.py", because, IN_PIPE)


def test_what_a_sourced_file_runs_is_told_once(bench: Bench, programs: dict[str, str]) -> None:
    code = bench.server.put_snapshot({"prepare.sh": "true\ncp no such\n"})
    (notice,) = run(bench, ". ./prepare.sh\ntrue", programs, code=code)
    assert notice.startswith(
        "line 2 of `./prepare.sh` failed with code 1, and the job went on: `cp"
    )


def test_set_e_ends_a_job_whose_script_program_returns_codes(
    bench: Bench, programs: dict[str, str]
) -> None:
    assert run(bench, "set -e\nscript -qec 'exit 3' /dev/null\ntrue", programs) == []
    assert bench.exit()["exit_code"] == 3
