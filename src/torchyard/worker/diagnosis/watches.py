"""Watch for ranks that make no progress: rendezvous limit, hang detection, job timeout.

Owns: when a gang counts as hung, where each of its ranks is, the failures and notices about it.
Leaves: the idle time of the whole job to the server, which hears from all nodes; stacks to
stacks.py, which ranks have joined to joined_ranks.py, pauses by the job's own pace to
stall_watch.py.
Always: only what the job's properties request ends a job; pauses, and the connections of a job on
several machines, are only told of.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.shared.failures import STOPPED_EXIT, Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.plurals import plural
from torchyard.worker.diagnosis import stacks
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.diagnosis.cut_connections import CutConnections
from torchyard.worker.diagnosis.joined_ranks import JoinedRanks
from torchyard.worker.diagnosis.stacks import RankPosition
from torchyard.worker.diagnosis.stall_watch import Positions, StallWatch
from torchyard.worker.launch.ranks import Rank
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.server.control import HANG, PEER_LOST, TIMEOUT, Control

_CHECK_EVERY_S = 5.0
_CHECKS_PER_LIMIT = 10
_GLANCE_S = 1.0
_JOINING = "in init_process_group"
_SEE_STACKS = "the stacks of all ranks are in user_logs/stacks_rank_<n>.txt"


class Watches:
    """The watches of one node, from the start of its ranks.

    Args:
        logs: the folder that the stacks are written to, one file per rank.
        ship: ships such a file under a name on the server.
        progress: changes whenever the ranks printed or logged something.
        post_event: posts an event to the server.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        context: DiagnosisContext,
        rendezvous: Rendezvous,
        control: Control,
        logs: Path,
        ship: Callable[[Path, str], None],
        post_event: Callable[..., None],
        progress: Callable[[], object],
    ) -> None:
        self._plan = plan
        self._context = context
        self._control = control
        self._logs = logs
        self._ship = ship
        self._post_event = post_event
        self._started = time.monotonic()
        self._joined_ranks = JoinedRanks(rendezvous.address, rendezvous.port)
        self._all_joined = plan.rendezvous_timeout_s <= 0 or plan.world_size == 1
        is_apart = plan.node_count > 1 and not plan.single_host
        self._connections = CutConnections(rendezvous.hosts, context.node) if is_apart else None
        self._stalls = self._stall_watch(progress)
        self._reported_idle_s = 0.0
        self._stacks_again_at = 0.0
        self.positions: list[dict[str, Any]] = []

    def _stall_watch(self, progress: Callable[[], object]) -> StallWatch | None:
        limit_s = self._plan.stall_notice_s
        if limit_s <= 0:
            return None
        return StallWatch(
            self._context,
            limit_s,
            progress,
            Positions(self._where_ranks_stand, self._leaves),
            self._post_event,
        )

    def check(self, running: Mapping[int, Rank]) -> float:
        intervals_s = [_CHECK_EVERY_S]
        intervals_s.append(self._check_stall(running))
        if self._connections is not None and running:
            for message in self._connections.news(next(iter(running))):
                self._post_event("notice", message=message)
        if not self._all_joined:
            self._check_rendezvous(running)
            intervals_s.append(max(0.2, self._plan.rendezvous_timeout_s / _CHECKS_PER_LIMIT))
        if self._plan.hang_after_s > 0:
            self._check_hang(running)
            intervals_s.append(max(0.2, self._plan.hang_after_s / _CHECKS_PER_LIMIT))
        return min(intervals_s)

    def _check_stall(self, running: Mapping[int, Rank]) -> float:
        if self._stalls is None:
            return _CHECK_EVERY_S
        try:
            return self._stalls.check(running)
        except Exception:
            # It only tells: a job that is well must not end by it.
            traceback.print_exc()
            self._stalls = None
            return _CHECK_EVERY_S

    def ending(self, running: Mapping[int, Rank]) -> None:
        limit_s = self._plan.last_stacks_s
        limits = (time.monotonic() + limit_s, limit_s / 3)
        if self._control.reason == HANG and not self.positions:
            self._write_stacks(running, "another node reported a hang", *limits)
        elif self._control.reason == TIMEOUT:
            self._write_stacks(running, "the job reached its time limit", *limits)
        is_of_itself = self._control.reason in ("", "failed", PEER_LOST, HANG, TIMEOUT)
        if self._stalls is not None and self._plan.world_size > 1 and is_of_itself:
            try:
                self._stalls.ending(self._last_positions(running))
            except Exception:
                traceback.print_exc()

    def hang(self) -> Failure:
        """The failure of a job that hangs, with the ranks of this node."""
        idle_s = self._plan.hang_after_s
        return Failure(
            HANG,
            f"no output or metric from any rank for {idle_s:g} s",
            _SEE_STACKS,
            details={"node": self._context.node, "stood": self.positions},
        )

    def timeout(self) -> Failure:
        """The failure of a job that timed out, with the ranks of this node."""
        return Failure(
            TIMEOUT,
            f"the job ran longer than its limit of {self._plan.timeout_s:g} s",
            f"raise `limits.timeout`, or check what took so long: {_SEE_STACKS}",
            STOPPED_EXIT,
            details={"node": self._context.node, "stood": self.positions},
        )

    def _check_hang(self, running: Mapping[int, Rank]) -> None:
        idle_s = self._control.idle_s
        if idle_s < self._plan.hang_after_s:
            self._reported_idle_s = 0.0
            return
        # Reported once per idle period, and again whenever its length has doubled.
        if idle_s < 2 * self._reported_idle_s:
            return
        self._reported_idle_s = idle_s
        self._write_stacks(running, f"no output or metric from any rank for {idle_s:.0f} s")
        if self._plan.hang_action == "fail":
            self._post_event("hang", idle_s=idle_s)
            raise self.hang()
        ranks = "; ".join(f"rank {rank['rank']}: {rank['where']}" for rank in self.positions[:8])
        silence = f"no output or metric from any rank for {idle_s:.0f} s"
        message = f"{silence}; node {self._context.node}: {ranks}"
        self._post_event("notice", message=message)

    def _check_rendezvous(self, running: Mapping[int, Rank]) -> None:
        missing = self._joined_ranks.find_missing(running)
        if not missing:
            self._all_joined = True
            return
        limit_s = self._plan.rendezvous_timeout_s
        if time.monotonic() - self._started < limit_s or not self._joined_ranks.has_members():
            return
        if time.monotonic() < self._stacks_again_at:
            return
        self._stacks_again_at = time.monotonic() + limit_s / 2
        late_ranks = {pid: rank for pid, rank in running.items() if rank in missing}
        positions = self._write_stacks(late_ranks, f"not in the process group after {limit_s:g} s")
        # A rank that is just joining is only slow; the others do not wait for it.
        not_joining = [rank for rank in positions if _JOINING not in positions[rank].text]
        if not not_joining:
            return
        self.positions = [
            position for position in self.positions if position["rank"] in not_joining
        ]
        first = self.positions[0]
        numbers = ", ".join(str(rank) for rank in not_joining)
        ranks = f"{plural('rank', len(not_joining))} {numbers}"
        raise Failure(
            "rendezvous_timeout",
            f"{ranks} on node {self._context.node} did not join the process "
            f"group within {limit_s:g} s while others wait; rank {first['rank']} is at "
            f"{first['where']}",
            "every rank must call `init_process_group`; see the stacks in user_logs/stacks_rank_"
            f"{first['rank']}.txt; `torchyard.rendezvous_timeout_s` sets the limit",
            details={"rank": first["rank"], "node": self._context.node, "stood": self.positions},
        )

    def _last_positions(self, running: Mapping[int, Rank]) -> list[dict[str, Any]]:
        """Return where the running ranks are when another one has failed."""
        some_joined = bool(self._joined_ranks.joined) and not self._all_joined
        missing = self._joined_ranks.find_missing(running) if some_joined else ()
        missing_numbers = {rank.rank for rank in missing}
        return [
            {
                "rank": rank,
                "where": self._describe(each),
                "waits_in": each.waits_in,
                "not_joined": rank in missing_numbers,
            }
            for rank, each in self._glance(running).items()
        ]

    def _leaves(self, running: Mapping[int, Rank]) -> dict[int, tuple[str, str]]:
        return {rank: position.leaf for rank, position in self._glance(running).items()}

    def _glance(self, running: Mapping[int, Rank]) -> dict[int, RankPosition]:
        """Where the ranks are, without a file of it; within a second."""
        deadline = time.monotonic() + _GLANCE_S
        return {
            rank.rank: stacks.write_stacks(
                pid, self._context.records_folder(rank.rank), None, "", deadline, _GLANCE_S / 4
            )
            for pid, rank in running.items()
        }

    def _where_ranks_stand(self, running: Mapping[int, Rank], reason: str) -> list[dict[str, Any]]:
        positions = self._write_stacks(running, reason)
        return [{**each, "waits_in": positions[each["rank"]].waits_in} for each in self.positions]

    def _write_stacks(
        self,
        running: Mapping[int, Rank],
        reason: str,
        deadline: float = math.inf,
        answer_s: float = stacks.ANSWER_S,
    ) -> dict[int, RankPosition]:
        self.positions = []
        positions: dict[int, RankPosition] = {}
        for pid, rank in running.items():
            name = f"stacks_rank_{rank.rank}.txt"
            title = f"rank {rank.rank} on node {self._context.node}, {_now()}: {reason}"
            errors = self._context.records_folder(rank.rank)
            file = self._logs / name
            position = stacks.write_stacks(pid, errors, file, title, deadline, answer_s)
            positions[rank.rank] = position
            self.positions.append({"rank": rank.rank, "where": self._describe(position)})
            self._ship(file, f"user_logs/{name}")
        return positions

    def _describe(self, position: RankPosition) -> str:
        frame = position.frame
        if frame is None:
            return f"no Python code, {position.state}" if position.state else "no Python code"
        file = frame.file
        start = f"{self._context.work}/"
        file = file[len(start) :] if file.startswith(start) else file
        function = "" if frame.function in ("", "<module>") else f" in {frame.function}"
        state = f" ({position.state})" if position.state else ""
        return f"{file} line {frame.line}{function}{state}"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
