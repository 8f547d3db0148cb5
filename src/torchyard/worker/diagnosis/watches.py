"""Ranks that run and get nowhere: the limit of the rendezvous, the hang watch, the job's time.

Owns: when a gang counts as hung, where each of its ranks stands, what is said of it.
Leaves: how long the whole job has been quiet to the server, which hears all nodes; stacks to
stacks.py, who has come to arrivals.py.
Always: nothing is looked at that the job's properties do not ask for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.shared.failures import STOPPED_EXIT, Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.diagnosis import stacks
from torchyard.worker.diagnosis.arrivals import Arrivals
from torchyard.worker.diagnosis.artifacts import Frame
from torchyard.worker.diagnosis.context import Scene
from torchyard.worker.diagnosis.stacks import Stand
from torchyard.worker.launch.ranks import Rank
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.server.control import HANG, TIMEOUT, Orders

_LOOK_EVERY_S = 5.0
_LOOKS = 10
_JOINING = "in init_process_group"
# All ranks together, before they are told to end: the end must not wait for who doesn't answer.
_LAST_STACKS_S = 3.0
_SEE_STACKS = "the stacks of all ranks are in user_logs/stacks_rank_<n>.txt"


class Watches:
    """Of one node, from the start of its ranks.

    Args:
        logs: where the stacks are written, one file a rank.
        ship: takes such a file and its name at the server.
        tell: posts an event.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        scene: Scene,
        meeting: Rendezvous,
        orders: Orders,
        logs: Path,
        ship: Callable[[Path, str], None],
        tell: Callable[..., None],
    ) -> None:
        self._plan = plan
        self._scene = scene
        self._orders = orders
        self._logs = logs
        self._ship = ship
        self._tell = tell
        self._started = time.monotonic()
        self._arrivals = Arrivals(meeting.address, meeting.port)
        self._joined = plan.rendezvous_timeout_s <= 0 or plan.world_size == 1
        self._told_at_s = 0.0
        self._stacks_again_at = 0.0
        self.stood: list[dict[str, Any]] = []

    def look(self, running: Mapping[int, Rank]) -> float:
        wanted = [_LOOK_EVERY_S]
        if not self._joined:
            self._look_at_rendezvous(running)
            wanted.append(max(0.2, self._plan.rendezvous_timeout_s / _LOOKS))
        if self._plan.hang_after_s > 0:
            self._look_for_hang(running)
            wanted.append(max(0.2, self._plan.hang_after_s / _LOOKS))
        return min(wanted)

    def ending(self, running: Mapping[int, Rank]) -> None:
        until = time.monotonic() + _LAST_STACKS_S
        if self._orders.reason == HANG and not self.stood:
            self._write_stacks(running, "another node found that the job hangs", until)
        elif self._orders.reason == TIMEOUT:
            self._write_stacks(running, "the job's time is over", until)

    def hang(self) -> Failure:
        """The failure of a job that hangs, as seen from this node."""
        quiet_s = self._plan.hang_after_s
        return Failure(
            HANG,
            f"no output and no metric from any rank for {quiet_s:g} s",
            _SEE_STACKS,
            details={"node": self._scene.node, "stood": self.stood},
        )

    def timeout(self) -> Failure:
        """The failure of a job whose time is over, as seen from this node."""
        return Failure(
            TIMEOUT,
            f"the job ran longer than its limit of {self._plan.timeout_s:g} s",
            f"raise `limits.timeout`, or see what took the time: {_SEE_STACKS}",
            STOPPED_EXIT,
            details={"node": self._scene.node, "stood": self.stood},
        )

    def _look_for_hang(self, running: Mapping[int, Rank]) -> None:
        quiet_s = self._orders.quiet_s
        if quiet_s < self._plan.hang_after_s:
            self._told_at_s = 0.0
            return
        # Once for each silence, and again each time it has become twice as long.
        if quiet_s < 2 * self._told_at_s:
            return
        self._told_at_s = quiet_s
        self._write_stacks(running, f"nothing from any rank for {quiet_s:.0f} s")
        if self._plan.hang_action == "fail":
            self._tell("hang", quiet_s=quiet_s)
            raise self.hang()
        shown = "; ".join(f"rank {one['rank']}: {one['where']}" for one in self.stood[:8])
        message = f"nothing from any rank for {quiet_s:.0f} s; node {self._scene.node}: {shown}"
        self._tell("notice", message=message)

    def _look_at_rendezvous(self, running: Mapping[int, Rank]) -> None:
        missing = self._arrivals.look(running)
        if not missing:
            self._joined = True
            return
        limit_s = self._plan.rendezvous_timeout_s
        if time.monotonic() - self._started < limit_s or not self._arrivals.others_wait():
            return
        if time.monotonic() < self._stacks_again_at:
            return
        self._stacks_again_at = time.monotonic() + limit_s / 2
        late = {pid: rank for pid, rank in running.items() if rank in missing}
        stands = self._write_stacks(late, f"not in the process group after {limit_s:g} s")
        # One that is just joining is slow, and not the one that is waited for.
        elsewhere = [rank for rank in stands if _JOINING not in stands[rank].text]
        if not elsewhere:
            return
        self.stood = [one for one in self.stood if one["rank"] in elsewhere]
        first = self.stood[0]
        many = len(elsewhere) > 1
        names = ", ".join(str(rank) for rank in elsewhere)
        raise Failure(
            "rendezvous_timeout",
            f"rank{'s' * many} {names} on node {self._scene.node} did not join the process group "
            f"within {limit_s:g} s while others wait; rank {first['rank']} is at {first['where']}",
            "every rank must call `init_process_group`; stacks are in user_logs/stacks_rank_"
            f"{first['rank']}.txt, the limit is `torchyard.rendezvous_timeout_s`",
            details={"rank": first["rank"], "node": self._scene.node, "stood": self.stood},
        )

    def _write_stacks(
        self, running: Mapping[int, Rank], why: str, until: float = math.inf
    ) -> dict[int, Stand]:
        self.stood = []
        stands: dict[int, Stand] = {}
        for pid, rank in running.items():
            name = f"stacks_rank_{rank.rank}.txt"
            title = f"rank {rank.rank} on node {self._scene.node}, {_now()}: {why}"
            errors = self._scene.folder(rank.rank)
            stand = stacks.write(pid, errors, self._logs / name, title, until)
            stands[rank.rank] = stand
            self.stood.append({"rank": rank.rank, "where": self._described(stand.frame)})
            self._ship(self._logs / name, f"user_logs/{name}")
        return stands

    def _described(self, frame: Frame | None) -> str:
        if frame is None:
            return "no Python code"
        file = frame.file
        start = f"{self._scene.work}/"
        file = file[len(start) :] if file.startswith(start) else file
        inner = "" if frame.function in ("", "<module>") else f" in {frame.function}"
        return f"{file} line {frame.line}{inner}"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
