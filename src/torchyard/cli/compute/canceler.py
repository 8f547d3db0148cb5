"""Cancel a job once the command that made it has ended without saying so.

Owns: the program that waits for that (`python -m torchyard.cli.compute.canceler`), starting it.
Leaves: what the job is to the command.
Always: it sees the end of a command that was killed, too, by the end of its standard input; the
server's token comes by that, never by an argument or a variable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from torchyard.base.errors import TorchyardError
from torchyard.base.http import Transport

# How long a creation may still be on its way when the command was killed.
_LATE_S = 30.0
_POLL_S = 0.2
_DONE = b"done"


@contextmanager
def canceled_with_this_process(transport: Transport, path: str) -> Iterator[None]:
    """Cancel a job unless the block ends in order.

    Args:
        path: of the job at the server; the block may create it.
    """
    request = {
        "url": transport.url,
        "token": transport.token,
        "ca_cert": transport.ca_cert,
        "path": path,
    }
    program = subprocess.Popen(
        [sys.executable, "-m", "torchyard.cli.compute.canceler"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the terminal's Ctrl-C and its end are for the command
    )
    assert program.stdin is not None
    try:
        program.stdin.write(json.dumps(request).encode() + b"\n")
        program.stdin.flush()
        yield
        program.stdin.write(_DONE)
    finally:
        with suppress(BrokenPipeError):
            program.stdin.close()
        program.wait()


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line or sys.stdin.buffer.read() == _DONE:
        return
    request = json.loads(line)
    transport = Transport(request["url"], request["token"], ca_cert=request["ca_cert"])
    deadline = time.monotonic() + _LATE_S
    while time.monotonic() < deadline:
        try:
            transport.post(f"{request['path']}/cancel")
            return
        except TorchyardError:
            time.sleep(_POLL_S)


if __name__ == "__main__":
    main()
