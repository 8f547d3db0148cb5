"""Let the shell of a rank write down which of its commands failed.

Owns: what bash runs before the job's command and behind it, the fields of a failure.
Leaves: reading them to diagnosis/artifacts.py, what the user is told to
diagnosis/hidden_failures.py, whether a step of a pipe or list was handled to shell_lists.py.
Always: what the command prints and returns stays the same, but for the prefix of bash's message on
a `./run.sh` that it can't start. Failures that the command handles itself
(`a || b`, `if a`) are not written down; a `trap … ERR` of its own replaces ours; nothing is
inherited by the programs that it starts. What its functions, subshells and substitutions run is
written down, too, unless it has traps of its own, which would be inherited as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from torchyard.worker.in_rank.rank_hook import VARIABLE as ERRORS_VARIABLE
from torchyard.worker.launch import shell_lists

FILE = "failed_commands"
# For each failure: exit code, line, the script that the shell was reading, how many functions and
# subshells it was in, command.
FIELDS = 5
# What bash runs no `trap … ERR` for: steps of a pipe before its last, and of `a && b` before its
# last. For each: the exit codes of the pipe, line and text of its last step.
STEPS_FILE = "failed_steps"
STEP_FIELDS = 3
# Stands in place of the depth where a script has ended: code and script are its own.
SCRIPT_END = "end"
_STARTUP = "bash_startup"
_MOST_FAILURES = 100
# A loop of the shell takes 50 microseconds more for each step until then.
_MOST_STEPS = 5_000
_STEPS = re.compile(r"[;\n|]|(?<![<>&])&(?![>&])")
_PIPE = re.compile(r"(?<![|>])\|(?!\|)")
_TRAP = re.compile(r"\btrap\b")
_SHELLS = ("bash", "sh", "dash")
# Programs that become the program which they are given.
_WRAPPERS = ("exec", "env", "nice", "nohup", "setsid", "stdbuf", "timeout")
_STRING_OPTION = re.compile(r"-[elux]{0,4}c")
_OTHER_OPTION = re.compile(r"-[elux]{1,4}|--login|--norc|--noprofile")
# Read by a bash that isn't interactive before its command. Source: bash(1), BASH_ENV.
_START = """\
{outer}unset BASH_ENV
{own}{script}{scripts}{inherit}_torchyard_failures={most}
trap '{{ printf "%s\\0" "$?" "${{_torchyard_line:-$LINENO}}" "${{BASH_SOURCE[0]}}" \
"$((BASH_SUBSHELL+${{#FUNCNAME[@]}}))" "$BASH_COMMAND" >>{file}; \
_torchyard_told=1; ((--_torchyard_failures)) || trap - ERR; }} 2>/dev/null' ERR
[[ -v BASH_EXECUTION_STRING ]] || {{ trap '{{ printf "%s\\0" "$?" 0 "$0" {end} "" >>{file}; }} \
2>/dev/null' EXIT; return; }}
_torchyard_steps={most_steps} _torchyard_told= _torchyard_seen=
trap '{{ _torchyard_now=("$?" "${{PIPESTATUS[*]}}" "$_"); {step} \
_torchyard_last=("$LINENO" "$BASH_COMMAND"); _torchyard_told=; \
((--_torchyard_steps)) || trap - DEBUG; \
: "${{_torchyard_now[2]}}"; }} 2>/dev/null' DEBUG
"""
# Each step once. A loop's next round leaves the exit codes of the pipe before it as they are.
_STEP = """\
[[ ${{_torchyard_now[1]}} == *[1-9]* && -n ${{_torchyard_last[1]-}} \
&& ( ${{_torchyard_now[1]}} == *" "* || ( ${{_torchyard_now[0]}} != 0 && -z $_torchyard_told ) ) \
&& ${{_torchyard_last[1]}} != "for "* && ${{_torchyard_last[1]}} != "case "* \
&& $_torchyard_seen != *" ${{_torchyard_now[1]}} ${{_torchyard_last[*]}};"* ]] && \
{{ _torchyard_seen+=" ${{_torchyard_now[1]}} ${{_torchyard_last[*]}};"; \
printf "%s\\0" "${{_torchyard_now[1]}}" "${{_torchyard_last[@]}}" >>{steps_file}; }};"""
# Lets bash look at the exit codes of a pipe at the command's end.
_END = "\nexit $?"
# The same for a string of which only its own shell knows the end. It runs the trap above once more.
_AT_EXIT = "trap : EXIT\n"
# `script -c` runs its string by a shell of its own, and returns 0 without `-e`.
_SCRIPT_WORD = re.compile(r"\bscript\s")
_SCRIPT = """\
script() {{ _torchyard_line=${{_torchyard_line:-${{BASH_LINENO[0]}}}} SHELL=$BASH BASH_ENV={path} \
command script "$@" || return $?; }}
"""
# Keeps `set -x` from showing what a function of ours does.
_QUIET = "{ local -; set +x; } 2>/dev/null"
# A script gets the same, without what looks at pipes: its lines are its own.
_SCRIPT_FILE = re.compile(r"\.(?:ba)?sh(?![\w.])")
_SCRIPTS = """\
bash() {{ {quiet}; local _torchyard_word
for _torchyard_word; do [[ $_torchyard_word == -* ]] || break; done
if [[ -f $_torchyard_word ]]; then BASH_ENV={path} command bash "$@" || return $?
else command bash "$@" || return $?; fi; }}
"""
# A function may have a path's name. Only bash reads BASH_ENV; others would pass it on.
_PROGRAM = re.compile(r"(?:^|(?<=[\s;&|(!]))[\w./-]{0,200}/[\w.-]{1,100}\.(?:ba)?sh(?=[\s;&|)]|$)")
_PROGRAMS = """\
{name}() {{ {quiet}; local _torchyard_word=; read -r _torchyard_word 2>/dev/null <{name} || :
if [[ $_torchyard_word == *bash* ]]; then BASH_ENV={path} command {name} "$@" || return $?
else command {name} "$@" || return $?; fi; }}
"""
# The shell that only starts the one with the commands.
_OUTER = """\
[[ ${{BASH_EXECUTION_STRING-}} == {command} ]] && return
"""
_OWN_STARTUP = """\
export BASH_ENV={path}
eval "[ -f \\"$BASH_ENV\\" ] && . \\"$BASH_ENV\\""
"""


def recorded(
    command: str, shell: str, environment: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """The command and the environment with which `shell` writes failures to the rank's folder; the
    same ones where nothing can go on after a failure, or the shell isn't bash.
    """
    folder = environment.get(ERRORS_VARIABLE)
    bare = _bare(command)
    starts_script = _SCRIPT_FILE.search(bare) is not None
    if not folder or Path(shell).name != "bash" or not (has_steps(command) or starts_script):
        return command, environment
    job_startup = environment.get("BASH_ENV", "")
    # Only another shell, which has the commands, goes on after a failure.
    is_wrapped = inner(command) != command or not has_steps(command)
    if is_wrapped and job_startup:
        return command, environment
    file = Path(folder) / _STARTUP
    steps_file = _quoted(f"{folder}/{STEPS_FILE}")
    path = shlex.quote(str(file))
    scripts = _SCRIPTS.format(path=path, quiet=_QUIET) if starts_script else ""
    for name in sorted(set(_PROGRAM.findall(bare)) if has_steps(command) else ()):
        scripts += _PROGRAMS.format(name=name, path=path, quiet=_QUIET)
    text = _START.format(
        outer=_OUTER.format(command=shlex.quote(command)) if is_wrapped else "",
        own=_OWN_STARTUP.format(path=shlex.quote(job_startup)) if job_startup else "",
        inherit="" if _TRAP.search(command) else "[[ -v BASH_EXECUTION_STRING ]] && set -E\n",
        scripts=scripts,
        end=SCRIPT_END,
        script=_SCRIPT.format(path=path) if _SCRIPT_WORD.search(command) else "",
        most=_MOST_FAILURES,
        most_steps=_MOST_STEPS,
        file=_quoted(f"{folder}/{FILE}"),
        step=_STEP.format(steps_file=steps_file),
    )
    if is_wrapped and shell_lists.ends_in_pipe(inner(command)) and not _TRAP.search(command):
        text += _AT_EXIT
    try:
        file.write_text(text)
    except OSError:
        return command, environment  # The disk may be full: the job runs all the same.
    if shell_lists.ends_in_pipe(command):
        command += _END
    return command, {**environment, "BASH_ENV": str(file)}


def _quoted(path: str) -> str:
    """As a word within a string in single quotes."""
    return shlex.quote(path).replace("'", "'\\''")


def has_steps(command: str) -> bool:
    """Whether a shell may go on after one of its commands has failed."""
    return bool(_STEPS.search(_bare(inner(command)).replace("||", "  ")))


def inner(command: str) -> str:
    """The string that a shell gets, in a command that is nothing but `bash -c STRING`; otherwise
    the command itself.
    """
    if _STEPS.search(_bare(command)):
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if not words or words[0].rpartition("/")[2] not in (*_WRAPPERS, *_SHELLS):
        return command
    names = [word.rpartition("/")[2] for word in words]
    shell = next((index for index, name in enumerate(names) if name in _SHELLS), len(names))
    for index in range(shell + 1, len(words) - 1):
        if _STRING_OPTION.fullmatch(words[index]):
            return words[index + 1]
        if not _OTHER_OPTION.fullmatch(words[index]):
            break
    return command


def has_pipe(command: str) -> bool:
    return bool(_PIPE.search(_bare(command)))


def _bare(command: str) -> str:
    """The command without quoted strings and comments, its continued lines joined."""
    bare = shell_lists.QUOTED_OR_COMMENT.sub(_blank, command)
    return bare.replace("\\\n", "''").strip()


def _blank(match: re.Match[str]) -> str:
    return "" if match[0].startswith("#") else "''"
