"""One node's part of an attempt, from first event to last.

Owns: the order of the steps, and what the node's exit is.
Leaves: each step to its own module.
Always: whatever goes wrong, the ranks are ended and the server is told why, unless it disowned
the attempt; the last event goes out after everything else is delivered.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.plan import LaunchPlan
from torchyard.worker import delivery, guardian, layout, networks, processes, ranks, temporary
from torchyard.worker import variables as variables_of
from torchyard.worker.events import Events
from torchyard.worker.failures import Failure
from torchyard.worker.layout import Folders
from torchyard.worker.link import AttemptOver, Link
from torchyard.worker.logs import LogShipper
from torchyard.worker.orders import OVER, Orders
from torchyard.worker.preparation import Prepared, prepare
from torchyard.worker.ranks import Gang, Rank, RankExit
from torchyard.worker.relay import Relay

_SIGTERM_EXIT = 143


@dataclass(frozen=True)
class Outcome:
    """`failure` is None when all ranks ended well."""

    failure: Failure | None = None

    @property
    def exit_code(self) -> int:
        return self.failure.exit_code if self.failure else 0


class Node:
    """Lives as long as its worker; `run` is called once, in the main thread."""

    def __init__(self, plan: LaunchPlan, node: int, folder: Path, base: Mapping[str, str]) -> None:
        self._plan = plan
        self._node = node
        self._base = base
        self._folders = Folders(folder)
        self._orders = Orders()
        self._link = Link(plan.server_url, plan.report_token, plan.attempt_id)
        self._gang = Gang(processes.mark(plan.attempt_id, node), plan.grace_s, self._rank_exited)
        layout.make_folders(self._folders)
        spool = self._folders.spool
        self._events = Events(self._link, node, spool, self._orders)
        self._relay = Relay(self._link, plan, node, spool)
        self._logs = LogShipper(self._link, spool)

    def run(self) -> int:
        """Do it all; returns the node's exit code."""
        self._begin()
        try:
            outcome = self._train()
        except AttemptOver:
            self._orders.stop(OVER)
            outcome = Outcome()
        except Failure as failure:
            outcome = Outcome(failure)
        except Exception as error:
            traceback.print_exc()
            self._gang.end()
            outcome = Outcome(_unexpected(error))
        outcome = self._deliver(outcome)
        self._leave(outcome)
        return outcome.exit_code

    def _begin(self) -> None:
        self._orders.listen_to_signals()
        guardian.record(self._folders.node)
        self._events.post(
            "node_started",
            hostname=socket.gethostname(),
            pid=os.getpid(),
            addresses=_addresses(),
        )
        self._events.start()
        self._orders.listen_to_server(self._link, self._node)

    def _train(self) -> Outcome:
        prepared = prepare(
            self._link, self._plan, self._node, self._folders, self._relay, self._orders
        )
        if prepared is None:
            return self._stopped()
        self._start_ranks(prepared)
        failed = self._gang.supervise(self._orders, self._plan.timeout_s)
        if prepared.port is not None:
            prepared.port.close()
        if failed is not None:
            return Outcome(ranks.describe(failed, self._node))
        return self._stopped() if self._orders.stopped else Outcome()

    def _start_ranks(self, prepared: Prepared) -> None:
        plan, node, folders = self._plan, self._node, self._folders
        shared = variables_of.of_node(self._base, plan, node, prepared.surroundings)
        planned = ranks.plan_ranks(
            node, plan.processes_per_node, plan.world_size, folders.user_logs
        )
        environments = {
            rank: variables_of.of_rank(shared, plan, node, rank.local_rank) for rank in planned
        }
        os.chdir(folders.work)
        if prepared.port is not None:
            prepared.port.open_up()
        layout = prepared.surroundings.layout
        for message in layout.notices:
            self._events.post("notice", message=message)
        started = self._gang.start(layout.command, environments, layout.mounts)
        self._events.post("ranks_started", ranks=[_started(pid, started[pid]) for pid in started])
        for rank in planned:
            self._logs.watch(rank.log, rank.log_name)
        # Nodes may write equal names; only node 0's keep the plain one.
        prefix = "logs" if node == 0 else f"logs/node-{node}"
        self._logs.watch_folder(folders.work / "logs", prefix)
        self._logs.start()

    def _rank_exited(self, exit: RankExit) -> None:
        self._events.post(
            "rank_exited",
            rank=exit.rank.rank,
            local_rank=exit.rank.local_rank,
            exit_code=exit.exit_code,
            signal=exit.signal or None,
        )

    def _stopped(self) -> Outcome:
        """The outcome of a node that was told to stop."""
        reason = self._orders.reason
        if reason == "timeout":
            message = "the job ran longer than its limit"
            if self._plan.timeout_s:
                message += f" of {self._plan.timeout_s:g} s"
            return Outcome(Failure("timeout", message, "raise `limits.timeout`", _SIGTERM_EXIT))
        code, why = _STOPS.get(reason, ("stopped", reason))
        return Outcome(Failure(code, f"node {self._node} was stopped: {why}", "", _SIGTERM_EXIT))

    def _deliver(self, outcome: Outcome) -> Outcome:
        if self._orders.over:
            return outcome
        self._events.post("node_finalizing")
        try:
            undelivered = delivery.deliver(
                self._link,
                self._plan,
                self._folders,
                (self._logs, self._relay),
                self._orders,
                succeeded=outcome.failure is None,
            )
        except AttemptOver:
            self._orders.stop(OVER)
            return outcome
        except Exception as error:
            traceback.print_exc()
            undelivered = _unexpected(error)
        if undelivered is not None:
            self._events.post("notice", message=undelivered.message)
            outcome = Outcome(outcome.failure or undelivered)
        error_body = outcome.failure.to_dict() if outcome.failure else None
        self._events.post("node_exited", exit_code=outcome.exit_code, error=error_body)
        self._events.deliver()
        return outcome

    def _leave(self, outcome: Outcome) -> None:
        if self._orders.over:
            print("the server disowned the attempt", file=sys.stderr, flush=True)
        self._events.close()
        node = self._folders.node
        temporary.forget(node)
        layout.clean(self._folders)
        body = {
            "exit_code": outcome.exit_code,
            "error": outcome.failure.to_dict() if outcome.failure else None,
            "over": self._orders.over,
        }
        written = node / "exit.json.new"
        written.write_text(json.dumps(body))
        written.replace(node / "exit.json")


_STOPS = {
    "cancel": ("canceled", "the job was canceled"),
    "failed": ("stopped", "another node failed"),
    "signal": ("stopped", "its worker was told to end"),
    OVER: ("stopped", "the attempt is over"),
}


def _started(pid: int, rank: Rank) -> dict[str, int]:
    return {"rank": rank.rank, "local_rank": rank.local_rank, "pid": pid}


def _addresses() -> list[str]:
    return [own for own in networks.interfaces().values() if own != networks.LOOPBACK]


def _unexpected(error: Exception) -> Failure:
    return Failure(
        "worker_failed",
        f"the worker failed: {type(error).__name__}: {error}",
        "its traceback is in worker.log on the node",
    )
