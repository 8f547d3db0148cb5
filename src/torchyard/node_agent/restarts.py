"""Run the agent in a child, and start it again when it is killed.

Owns: the child's life, passing signals on to it.
Leaves: being a node to agent.py; starting this program at every boot to systemd.
Always: an agent that ends by itself is not started again, nor one that was told to end; the child
ends with this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable

_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_AWAITED = _ENDING | {signal.SIGCHLD}
_AGAIN_S = 1.0
_PR_SET_PDEATHSIG = 1


def run(agent: Callable[[], int], say: Callable[[str], object]) -> int:
    """The exit code.

    Args:
        agent: what the child does; its exit code.
        say: called with each line for the person who watches.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    while True:
        child = _fork(agent)
        code, is_told = _await(child)
        if code >= 0 or is_told:
            return code if code >= 0 else 128 - code
        name = signal.Signals(-code).name
        say(f"warning: the node's program was killed by {name}; it is started again")
        if signal.sigtimedwait(_ENDING, _AGAIN_S) is not None:
            return 128 - code


def _fork(agent: Callable[[], int]) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() == parent:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
            code = agent()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _await(child: int) -> tuple[int, bool]:
    """How the child ended, negative for a signal, and whether it was told to."""
    is_told = False
    while True:
        signum = signal.sigwait(_AWAITED)
        if signum in _ENDING:
            is_told = True
            os.kill(child, signum)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), is_told
