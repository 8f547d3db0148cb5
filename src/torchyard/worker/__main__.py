"""`python -I -S worker.pyz --plan <scratch>/plan.json --node K`

On a machine that does not see the server's disk, `--start FD --node K …` comes first; see
node/starter.py. `--fork-server FD` is the process that forks workers on request; see
node/fork_server.py.

Owns: the command line.
Leaves: supervisor and worker to node/supervised_worker.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torchyard.worker.node import supervised_worker


def main() -> int:
    """Exit code: the node's, 0 for a second worker and for a fork server."""
    if sys.argv[1:2] == ["--start"]:
        from torchyard.worker.node import starter  # Only on other machines than the server's.

        return starter.start(starter.arguments(sys.argv[1:]), os.environ)
    if sys.argv[1:2] == ["--fork-server"]:
        from torchyard.worker.node import fork_server  # Where the server's own user runs jobs.

        return fork_server.serve(int(sys.argv[2]))
    return supervised_worker.run(*_arguments(sys.argv[1:]))


def _arguments(arguments: list[str]) -> tuple[Path, int]:
    options = {arguments[index]: arguments[index + 1] for index in range(0, len(arguments) - 1, 2)}
    if len(arguments) != 4 or set(options) != {"--plan", "--node"}:
        sys.exit("usage: worker.pyz --plan <scratch>/plan.json --node K")
    return Path(options["--plan"]).absolute(), int(options["--node"])


if __name__ == "__main__":
    sys.exit(main())
