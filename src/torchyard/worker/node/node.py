"""One node's part of an attempt, from first event to last.

Owns: the order of the steps, and which of them the node's exit comes from.
Leaves: each step to its own module, the words of a failure to diagnosis/outcome.py.
Always: whatever goes wrong, the ranks are ended and the server is told why, unless it disowned
the attempt; the last event goes out after everything else is delivered.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.shared import secret_values
from torchyard.shared.connection import AttemptOver, Connection
from torchyard.shared.failures import Failure
from torchyard.shared.masking import Masker
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.diagnosis import outcome
from torchyard.worker.diagnosis.context import Scene
from torchyard.worker.files import layout, rehearsal
from torchyard.worker.files.layout import Folders
from torchyard.worker.files.logs import LogShipper
from torchyard.worker.in_rank import sdk_v1_unsent
from torchyard.worker.in_rank.rank_hook import VARIABLE as ERRORS_VARIABLE
from torchyard.worker.launch import ranks
from torchyard.worker.launch import variables as variables_of
from torchyard.worker.launch.launching import MPI
from torchyard.worker.launch.ranks import Gang, Rank, RankExit
from torchyard.worker.node import delivery, supervisor
from torchyard.worker.node.preparation import Prepared, prepare
from torchyard.worker.relay.relay import Relay
from torchyard.worker.server.control import HANG, OVER, PEER_LOST, SERVED, TIMEOUT, Orders
from torchyard.worker.server.events import Events
from torchyard.worker.system import cgroups, networks, processes, temporary
from torchyard.worker.system.memory_kills import MemoryKills

if TYPE_CHECKING:
    from torchyard.worker.diagnosis.watches import Watches
    from torchyard.worker.launch.image_root import Root
    from torchyard.worker.launch.mpi import Launch
    from torchyard.worker.preflight.preflight import Preflight
    from torchyard.worker.preflight.rendezvous import Meeting


class Node:
    """Lives as long as its worker; `run` is called once, in the main thread."""

    def __init__(self, plan: LaunchPlan, node: int, folder: Path, base: Mapping[str, str]) -> None:
        self._plan = plan
        self._node = node
        self._base = base
        self._folders = Folders(folder)
        self._orders = Orders()
        self._link = Connection.of_plan(plan)
        self._gang = Gang(
            processes.mark(plan.attempt_id, node), plan.grace_s, self._rank_exited, self._stopping
        )
        layout.make_folders(self._folders)
        spool = self._folders.spool
        masker = _masker(plan, base)
        self._events = Events(
            self._link, node, spool, self._orders, masker=masker, watched=plan.hang_after_s > 0
        )
        self._relay = Relay(self._link, plan, node, spool, self._notice)
        self._logs = LogShipper(self._link, spool, masker)
        together = plan.world_size > 1
        self._launch: Launch | None = None
        self._serving = False
        self._scene = Scene(node, together, self._folders.work, self._folders.errors, MemoryKills())

    def run(self) -> int:
        """Do it all; returns the node's exit code."""
        self._begin()
        try:
            failure = self._train()
        except AttemptOver:
            self._orders.stop(OVER)
            failure = None
        except Failure as raised:
            failure = raised
        except Exception as error:
            traceback.print_exc()
            self._gang.end()
            failure = outcome.unexpected(error)
        return self._end(failure)

    def inherit(self, how: str) -> int:
        """Deliver what a worker that died owed, and tell of its death; its ranks are ended.

        Args:
            how: how it died, as in "was killed by signal 9".
        """
        self._orders.listen_to_signals()
        supervisor.record(self._folders.node)
        self._events.start()
        plan = self._plan
        self._watch_logs(
            ranks.plan_ranks(
                self._node, plan.processes_per_node, plan.world_size, self._folders.user_logs
            )
        )
        message = f"the worker of node {self._node} {how}"
        hint = (
            "it may have been killed for memory: see `dmesg` on that machine, and "
            f"`system_logs/node-{self._node}.log` among the job's files"
        )
        return self._end(Failure("worker_lost", message, hint))

    def _begin(self) -> None:
        self._orders.listen_to_signals()
        supervisor.record(self._folders.node)
        self._events.post(
            "node_started",
            hostname=socket.gethostname(),
            pid=os.getpid(),
            addresses=_addresses(),
        )
        self._events.start()
        self._orders.listen_to_server(self._link, self._node)

    def _train(self) -> Failure | None:
        preflight = self._preflight()
        prepared = prepare(
            self._link,
            self._plan,
            self._node,
            self._folders,
            self._relay,
            self._orders,
            preflight,
        )
        if prepared is None:
            return outcome.stopped(self._orders.reason, self._node)
        if preflight is not None:
            preflight.glance(prepared.surroundings.layout.command, self._folders.work)
        self._start_ranks(prepared)
        watches = self._watches(prepared)
        try:
            failed = self._gang.supervise(
                self._orders,
                self._plan.timeout_s,
                lambda exit: outcome.is_consequence(exit, self._scene),
                watches,
            )
        finally:
            if prepared.port is not None:
                prepared.port.close()
            prepared.launching.close()
        return self._verdict(failed is not None, watches)

    def _verdict(self, rank_failed: bool, watches: Watches | None) -> Failure | None:
        """What the node's end was, once all ranks have ended."""
        reason = self._orders.reason
        if watches is not None and reason == HANG:
            return watches.hang()
        if watches is not None and not rank_failed and reason == TIMEOUT:
            return watches.timeout()
        if reason == SERVED:
            return None
        launch = self._launch if self._gang.launcher_failed else None
        if rank_failed or launch is not None or reason in ("failed", PEER_LOST):
            found = outcome.culprit(self._gang, self._scene, self._node, self._folders.work)
            if found is not None:
                return found
        if self._orders.stopped:
            return outcome.stopped(self._orders.reason, self._node)
        if launch is not None:
            return launch.failure()
        for message in outcome.hidden_failures(self._gang.exits, self._scene):
            self._notice(message)
        return None

    def _preflight(self) -> Preflight | None:
        asked = self._plan.preflight
        if asked == "off" or (self._plan.world_size == 1 and asked != "always"):
            return None
        from torchyard.worker.preflight.preflight import Preflight  # One rank has nobody to meet.

        return Preflight(self._plan, self._node, self._base, self._folders.node, self._events.post)

    def _watches(self, prepared: Prepared) -> Watches | None:
        plan = self._plan
        if max(plan.hang_after_s, plan.rendezvous_timeout_s, plan.timeout_s) <= 0:
            return None
        from torchyard.worker.diagnosis.watches import Watches  # Only few jobs ask for it.

        return Watches(
            plan,
            self._scene,
            prepared.surroundings.meeting,
            self._orders,
            self._folders.user_logs,
            self._logs.watch,
            self._events.post,
        )

    def _start_ranks(self, prepared: Prepared) -> None:
        plan, node, folders = self._plan, self._node, self._folders
        shared = variables_of.of_node(self._base, plan, node, prepared.surroundings)
        planned = ranks.plan_ranks(
            node, plan.processes_per_node, plan.world_size, folders.user_logs
        )
        meeting = prepared.surroundings.meeting
        environments = {rank: self._variables_of(rank, shared, meeting) for rank in planned}
        os.chdir(folders.work)
        if prepared.port is not None:
            prepared.port.open_up()
        prepared.launching.open_up()
        layout = prepared.surroundings.layout
        for message in layout.notices:
            self._notice(message)
        held = cgroups.limit(processes.mark(plan.attempt_id, node), plan.cores, plan.memory_bytes)
        if held:
            self._notice(f"node {node} is held to {' and '.join(held)}, as its size says")
        rehearsal.announce(plan, planned)
        root = self._enter_image(prepared)
        if plan.distribution == MPI and plan.world_size > 1:
            started = self._launch_by_mpi(prepared, shared, environments)
        else:
            started = self._gang.start(layout.command, environments, layout.mounts, root)
        self._events.post("ranks_started", ranks=[_started(pid, started[pid]) for pid in started])
        self._tell_if_serving()
        self._watch_logs(planned)

    def _launch_by_mpi(
        self,
        prepared: Prepared,
        shared: Mapping[str, str],
        environments: Mapping[Rank, Mapping[str, str]],
    ) -> dict[int, Rank]:
        from torchyard.worker.launch.mpi import Launch  # Other jobs need no Open MPI.

        found = prepared.surroundings
        self._launch = Launch(self._plan, self._node, self._folders, found, self._gang)
        self._logs.watch(self._launch.log, self._launch.log_name)
        return self._launch.run(shared, environments, self._orders, prepared.launching.errands)

    def _watch_logs(self, planned: Sequence[Rank]) -> None:
        for rank in planned:
            self._logs.watch(rank.log, rank.log_name)
        # Nodes may write equal names; only node 0's keep the plain one.
        prefix = "logs" if self._node == 0 else f"logs/node-{self._node}"
        self._logs.watch_folder(self._folders.work / "logs", prefix)
        self._logs.start()

    def _variables_of(
        self, rank: Rank, shared: Mapping[str, str], meeting: Meeting
    ) -> dict[str, str]:
        errors = self._scene.folder(rank.rank)
        errors.mkdir(mode=0o700, parents=True, exist_ok=True)
        variables = variables_of.of_rank(shared, self._plan, self._node, rank.local_rank, meeting)
        if self._plan.image:
            variables = variables_of.with_hooks(variables, self._folders.hooks)
        return {**variables, ERRORS_VARIABLE: str(errors)}

    def _enter_image(self, prepared: Prepared) -> Root | None:
        """The root filesystem that the ranks will run in, if it is not the machine's."""
        if self._plan.image is None:
            return None
        from torchyard.worker.launch import image_root  # Few jobs run in one.

        found = prepared.surroundings
        root = image_root.of_node(self._plan, self._folders, found, self._base)
        for message in root.notices:
            self._notice(f"node {self._node}: {message}")
        return root

    def _rank_exited(self, exit: RankExit) -> None:
        if self._launch is not None:
            self._launch.rank_exited(exit)
        failed = exit.exit_code and not exit.ordered
        consequence = failed and outcome.is_consequence(exit, self._scene)
        self._events.post(
            "rank_exited",
            rank=exit.rank.rank,
            local_rank=exit.rank.local_rank,
            exit_code=exit.exit_code,
            signal=exit.signal or None,
            **({"consequence": True} if consequence else {}),
        )
        self._tell_if_serving()

    def _tell_if_serving(self) -> None:
        """Parameter servers end by no end of their own, but when nobody is left to serve."""
        if self._plan.parameter_servers and not self._serving:
            from torchyard.worker.launch import tensorflow_tasks  # Other kinds need no such thing.

            ended = {one.rank.local_rank for one in self._gang.exits if not one.exit_code}
            if tensorflow_tasks.only_servers_left(self._plan, self._node, ended):
                self._serving = True
                self._events.post("node_serving")

    def _notice(self, message: str) -> None:
        self._events.post("notice", message=message)

    def _stopping(self, reason: str) -> None:
        # The other nodes need not wait for this one's grace.
        self._events.post("node_stopping", reason=reason)

    def _end(self, failure: Failure | None) -> int:
        """Deliver what is left and go; returns the exit code."""
        failure = self._deliver(failure)
        exit_code = failure.exit_code if failure else 0
        self._leave(failure, exit_code)
        return exit_code

    def _deliver(self, failure: Failure | None) -> Failure | None:
        """The failure, or the one of the delivery itself."""
        if self._orders.over:
            return failure
        self._events.post("node_finalizing")
        self._keep_unsent()
        try:
            undelivered = delivery.deliver(
                self._link,
                self._plan,
                self._folders,
                (self._logs, self._relay),
                self._orders,
                succeeded=failure is None,
            )
        except AttemptOver:
            self._orders.stop(OVER)
            return failure
        except Exception as error:
            traceback.print_exc()
            undelivered = outcome.unexpected(error)
        if undelivered is not None:
            self._notice(undelivered.message)
            failure = failure or undelivered
        self._events.post(
            "node_exited",
            exit_code=failure.exit_code if failure else 0,
            error=failure.to_dict() if failure else None,
        )
        self._events.deliver()
        return failure

    def _keep_unsent(self) -> None:
        """What SDK v1 held in Pythons that were killed, or ended without a word."""
        if not any(self._folders.errors.glob(f"*/*{sdk_v1_unsent.ENDING}")):
            return
        from torchyard.shared import sdk_v1_records  # Few jobs log by SDK v1.

        for run, metric in sdk_v1_unsent.left(self._folders.errors):
            try:
                self._relay.keep(sdk_v1_records.logged(run, {"values": [metric]}))
            except Exception as error:
                # What else is owed is delivered all the same.
                print(f"not kept for run `{run}`: {error!r}", file=sys.stderr, flush=True)

    def _leave(self, failure: Failure | None, exit_code: int) -> None:
        if self._orders.over:
            print("the server disowned the attempt", file=sys.stderr, flush=True)
        self._events.close()
        node = self._folders.node
        temporary.forget(node)
        # Metrics that the server has not got are its own to find, when it cleans up.
        layout.clean(self._folders, keep_spool=self._relay.left > 0)
        body = {
            "exit_code": exit_code,
            "error": failure.to_dict() if failure else None,
            "over": self._orders.over,
        }
        written = node / "exit.json.new"
        try:
            written.write_text(json.dumps(body))
            written.replace(node / "exit.json")
        except OSError as error:
            # The server has been told already; a node without it is taken for one that is gone.
            print(f"exit.json not written: {error}", file=sys.stderr, flush=True)


def _started(pid: int, rank: Rank) -> dict[str, int]:
    return {"rank": rank.rank, "local_rank": rank.local_rank, "pid": pid}


def _masker(plan: LaunchPlan, base: Mapping[str, str]) -> Masker:
    """Knows what the job marked as secret, and what the ranks inherit under a telling name."""
    known = {**base, **plan.environment_variables}
    values = secret_values.of_environment(known, plan.secrets, plan.not_secrets)
    return Masker(secret_values.written(values))


def _addresses() -> list[str]:
    return [own for own in networks.interfaces().values() if own != networks.LOOPBACK]
