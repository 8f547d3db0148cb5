"""Stop orders, wherever they come from, and the one place where the worker waits.

Owns: the first reason to stop, the long poll for the server's orders, waking the main thread.
Leaves: what stopping means to node/node.py and launch/ranks.py.
Always: the first reason stays; an attempt that is over overrides it.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import Any

from torchyard.shared.connection import AttemptOver, Connection, Refused

OVER = "over"
HANG = "hang"
PEER_LOST = "peer_lost"
# Nobody is left whom a parameter server could serve.
SERVED = "served"
TIMEOUT = "timeout"
_POLL_S = 20
_PAUSE_S = 1.0


class Orders:
    """`reason` is empty until something orders a stop: cancel, preempted,
    failed, peer_lost, hang, timeout, signal, over, served.

    `quiet_s` is how long the server has heard nothing from any rank, where that is watched.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.stopped_at = 0.0
        self.quiet_s = 0.0
        self._lock = threading.Lock()
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)

    @property
    def stopped(self) -> bool:
        return bool(self.reason)

    @property
    def over(self) -> bool:
        return self.reason == OVER

    def stop(self, reason: str) -> None:
        with self._lock:
            if not self.reason:
                self.stopped_at = time.monotonic()
            if not self.reason or reason == OVER:
                self.reason = reason
        self.wake()

    def wake(self) -> None:
        """Let `wait` return; safe in any thread and in a signal handler."""
        try:
            os.write(self._writable, b"\0")
        except BlockingIOError:
            pass

    def wait(self, timeout_s: float) -> None:
        """Sleep until woken, or until a child ended or a signal came."""
        # poll may sleep a little less than asked; a woken waiter looks again anyway.
        waiter = select.poll()
        waiter.register(self._readable, select.POLLIN)
        if waiter.poll(max(0, int(timeout_s * 1000) + 1)):
            try:
                os.read(self._readable, 65536)
            except BlockingIOError:
                pass

    def listen_to_signals(self) -> None:
        """Main thread only: SIGTERM stops, a child's end wakes."""
        signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        ending = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for signum in ending:
            signal.signal(signum, lambda *_: self._stop_from_signal())
        # Held back since the guardian forked, so that none that came early is lost.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)

    def listen_to_server(self, link: Connection, node: int) -> None:
        """Start the long poll in a thread of its own."""
        threading.Thread(target=self._poll, args=(link, node), name="orders", daemon=True).start()

    def obey(self, answer: dict[str, Any]) -> None:
        """Follow the order in a server's answer, if there is one."""
        quiet_s = answer.get("quiet_s")
        if isinstance(quiet_s, (int, float)):
            self.quiet_s = float(quiet_s)
            self.wake()
        if answer.get("order") == "stop":
            self.stop(str(answer.get("reason") or "cancel"))

    def _stop_from_signal(self) -> None:
        # No lock here: the handler may have interrupted its holder.
        if not self.reason:
            self.stopped_at = time.monotonic()
            self.reason = "signal"

    def _poll(self, link: Connection, node: int) -> None:
        query = {"node": node, "wait_s": _POLL_S}
        while not self.stopped:
            try:
                self.obey(link.call("GET", "/orders", query=query, timeout_s=_POLL_S + 10.0))
            except AttemptOver:
                self.stop(OVER)
            except (OSError, Refused):
                time.sleep(_PAUSE_S)
