"""Read a job in the background until it has ended.

Owns: the thread, when it reads, what is said when the server does not answer.
Leaves: reading to view.py, showing to those who listen.
Always: one thread for each job, however many cells show it; it ends with the job or with the
process, and raises and prints nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import replace

from torchyard.base.errors import Forbidden, NotAuthenticated, NotFound, TorchyardError
from torchyard.notebook.view import View

Listener = Callable[[View], None]

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 5.0
_FINAL = (Forbidden, NotAuthenticated, NotFound)

_followers: dict[Hashable, Follower] = {}
_lock = threading.Lock()


class Follower:
    """Reads views of one job, and gives each to all listeners.

    Args:
        read: reads the job as it is now.
        wait: waits for some seconds.
    """

    def __init__(
        self, read: Callable[[], View], view: View, wait: Callable[[float], object]
    ) -> None:
        self._read = read
        self._wait = wait
        self._listeners: list[Listener] = []
        self._guard = threading.Lock()
        self.view = view
        self.is_done = view.has_ended

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every new view, and with the newest one now."""
        with self._guard:
            self._listeners.append(listener)
            _tell(listener, self.view)

    def run(self) -> None:
        """Return when the job has ended, or can't be read any more."""
        pause_s = _SHORTEST_PAUSE_S
        while not self.is_done:
            self._wait(pause_s)
            before = self.view
            self._step()
            is_news = self.view != before
            pause_s = _SHORTEST_PAUSE_S if is_news else min(1.5 * pause_s, _LONGEST_PAUSE_S)

    def _step(self) -> None:
        try:
            view = self._read()
            is_done = view.has_ended
        except _FINAL as error:
            view, is_done = replace(self.view, note=f"No longer refreshed: {error}."), True
        except TorchyardError as error:
            # The server may be restarting; the job trains on meanwhile.
            view, is_done = replace(self.view, note=f"Not up to date: {error}."), False
        except Exception as error:
            note = f"No longer refreshed: {type(error).__name__}: {error}."
            view, is_done = replace(self.view, note=note), True
        with self._guard:
            is_news = view != self.view
            self.view = view
            self.is_done = is_done
            for listener in self._listeners if is_news else ():
                _tell(listener, view)


def follow(
    key: Hashable, read: Callable[[], View], view: View, wait: Callable[[float], object]
) -> Follower:
    """The follower of a job, started unless it is followed already or has ended.

    Args:
        key: the job: the same for the same job of the same server.
        read: reads the job, on a thread of its own.
        view: the job as it was read just now.
    """
    with _lock:
        for ended in [key for key, follower in _followers.items() if follower.is_done]:
            del _followers[ended]
        follower = _followers.get(key)
        if follower is None:
            follower = _followers[key] = Follower(read, view, wait)
            if not follower.is_done:
                name = f"torchyard follows {view.job['name']}"
                # A kernel that ends does not wait for it.
                threading.Thread(target=follower.run, name=name, daemon=True).start()
        return follower


def _tell(listener: Listener, view: View) -> None:
    try:
        listener(view)
    except Exception:
        # The cell's other end is gone, as with a kernel that shuts down: there is nobody to tell.
        return
