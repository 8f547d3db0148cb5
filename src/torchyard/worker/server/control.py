"""Control of a worker: requests to stop, wherever they come from, and where the worker waits.

Owns: the first reason to stop, the long poll for the server's control messages, waking the main
thread.
Leaves: what stopping means to node/node.py and launch/ranks.py.
Always: the first reason stays; an attempt that is over overrides it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from torchyard.shared.connection import AttemptOver, Connection
from torchyard.worker.system import signals
from torchyard.worker.system.signals import Received

OVER = "over"
HANG = "hang"
PEER_LOST = "peer_lost"
SIGNAL = "signal"
# No rank is left that a parameter server could serve.
SERVED = "served"
TIMEOUT = "timeout"
# The end of the time that a job is held after its script.
RELEASE = "release"
# What the server asks for.
STOP = "stop"
_POLL_S = 20
# Responses to reports carry stop requests, too, and small jobs end before the first poll.
_FIRST_POLL_AFTER_S = 0.2
_PAUSE_S = 1.0
_TUNNEL_PAUSE_S = 0.3


class Control:
    """`reason` is empty until something requests a stop: cancel, preempted, failed, peer_lost,
    hang, timeout, signal, over, served.

    `urgent` once the ranks are to be killed without a grace period. `idle_s` is how long the ranks
    have written nothing, as the server says where that is watched. `signal` is the one that
    requested the stop, if one did, `signaled_at` when it came, in seconds since 1970. `on_tunnel`
    is called when the server asks this node for a tunnel. `latest_reason` is the server's last one,
    where `reason` stays the first.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.signal: Received | None = None
        self.signaled_at = 0.0
        self.stopped_at = 0.0
        self.urgent = False
        self.idle_s = 0.0
        self.latest_reason = ""
        self.on_tunnel: Callable[[], None] = lambda: None
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

    def ends_hold(self, own_failure: bool) -> bool:
        """Whether a node that is held after its ranks have ended is to end.

        Args:
            own_failure: a rank of this node failed, which the server answers with a stop.
        """
        if self.urgent or self.over:
            return True
        latest = self.latest_reason or self.reason
        return bool(latest) and not (own_failure and latest in ("failed", PEER_LOST))

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
        # poll may return a little early; a caller that is woken checks again anyway.
        waiter = select.poll()
        waiter.register(self._readable, select.POLLIN)
        if waiter.poll(max(0, int(timeout_s * 1000) + 1)):
            try:
                os.read(self._readable, 65536)
            except BlockingIOError:
                pass

    def handle_signals(self, on_signal: Callable[[], None] = lambda: None) -> None:
        """Main thread only: SIGTERM requests a stop, a child's end wakes.

        SIGTERM stays blocked, and a thread waits for it, because only so its sender is known.
        Programs that the worker starts must be given an empty signal mask.

        Args:
            on_signal: called when a signal is the first to request a stop, before it does.
        """
        signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Held back since the supervisor forked, so that none that came early is lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.ENDING)
        early = signal.sigtimedwait(signals.ENDING, 0)
        if early is not None:
            self._stop_from_signal(early, on_signal)
        threading.Thread(
            target=self._wait_for_signals, args=(on_signal,), name="signals", daemon=True
        ).start()

    def poll_server(self, connection: Connection, node: int) -> None:
        """Start the long poll in a thread of its own."""
        threading.Thread(
            target=self._poll, args=(connection, node), name="control", daemon=True
        ).start()

    def apply(self, response: dict[str, Any]) -> None:
        """Apply the control message in a server's response, if there is one."""
        idle_s = response.get("idle_s")
        if isinstance(idle_s, (int, float)):
            self.idle_s = float(idle_s)
            self.wake()
        if response.get("tunnel") is True:
            self.on_tunnel()
        if response.get("control") == STOP:
            self.urgent = self.urgent or response.get("urgent") is True
            self.latest_reason = str(response.get("reason") or "cancel")
            self.stop(str(response.get("reason") or "cancel"))

    def _wait_for_signals(self, on_signal: Callable[[], None]) -> None:
        while True:
            self._stop_from_signal(signal.sigwaitinfo(signals.ENDING), on_signal)

    def _stop_from_signal(self, info: signal.struct_siginfo, on_signal: Callable[[], None]) -> None:
        received = signals.received(info)
        print(f"received {received.text}", file=sys.stderr, flush=True)
        if self.stopped:
            return
        self.signal, self.signaled_at = received, time.time()
        on_signal()
        self.stop(SIGNAL)

    def _poll(self, connection: Connection, node: int) -> None:
        query: dict[str, Any] = {"node": node, "wait_s": _POLL_S}
        time.sleep(_FIRST_POLL_AFTER_S)
        while not self.urgent and not self.over:
            if self.stopped:
                query |= {"after": STOP, "after_reason": self.latest_reason}
            try:
                response = connection.call("GET", "/control", query=query, timeout_s=_POLL_S + 10.0)
                self.apply(response)
                if response.get("tunnel") is True:
                    time.sleep(_TUNNEL_PAUSE_S)  # until it is open, the server asks for it
            except AttemptOver:
                self.stop(OVER)
            # A fault of ours, too: without this thread the node would not hear of a cancel.
            except Exception:
                time.sleep(_PAUSE_S)
