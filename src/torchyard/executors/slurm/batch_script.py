"""The batch script of an attempt.

Owns: the script's text.
Leaves: the options of sbatch to engine.py, what runs on a node to on_node.py and the bootstrap
program.
Always: the report token is in the script's standard input for srun, which only the job's user and
Slurm's administrators can read, and in no argument and no variable; every text is quoted.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from torchyard.shared.node_start import NodeStart

_MARK = "TORCHYARD_NODE_START"
# An argument of a program has 128 KiB at the most.
_LONGEST_ARGUMENT = 120_000
_SCRIPT = """\
#!/bin/sh
umask 077
# Slurm ends the steps by itself; this script stays until srun has seen them end.
trap 'interrupted=1' TERM
# What nodes say is in a file without a name, so that nothing stays when this script is killed.
exec 3>/dev/null 4</dev/null
log=$(mktemp "${{TMPDIR:-/tmp}}/torchyard-XXXXXX") && exec 3>"$log" 4<"$log" && rm -f "$log"
program={program}
bootstrap={bootstrap}
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 \\
  --cpu-bind=none --mem=0 --export=ALL --input=all \\
  {python} -I -S -c "$program" "$bootstrap" >&3 2>&1 3>&- 4<&- <<'{mark}' &
{start}
{mark}
srun=$!
interrupted=1
while [ -n "$interrupted" ]; do interrupted=; wait "$srun"; code=$?; done
if [ "$code" -ne 0 ]; then
  said=$(grep -vE '^(slurmstepd: |srun: .*( code | cpu binding))' <&4 | tail -c 800)
  said=$(printf %s "$said" | LC_ALL=C tr -c '[:print:]' ' ')
  scontrol update JobId="$SLURM_JOB_ID" Comment={comment}" | $said" 2>/dev/null
fi
exit "$code"
"""


def text(start: NodeStart, python: str, comment: str) -> str:
    """
    Args:
        comment: of the job in Slurm; what nodes say that could not start follows it.
    """
    folder = Path(__file__).parent
    program = (folder / "on_node.py").read_text()
    bootstrap = (folder.parent / "bootstrap_program.py").read_text()
    assert len(program) < _LONGEST_ARGUMENT and len(bootstrap) < _LONGEST_ARGUMENT
    body = start.to_json()
    assert "\n" not in body
    return _SCRIPT.format(
        program=shlex.quote(program),
        bootstrap=shlex.quote(bootstrap),
        python=shlex.quote(python),
        comment=shlex.quote(comment),
        mark=_MARK,
        start=body,
    )
