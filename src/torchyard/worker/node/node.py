"""Run one node's part of an attempt, from its first event to its last.

Owns: the order of the steps, and which step determines the node's exit.
Leaves: each step to its own module, the causes and messages of failures to diagnosis/.
Always: whatever goes wrong, the ranks are stopped and the failure is reported to the server, unless
the attempt is over there; the last event is sent after everything else is delivered.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.shared import node_records, secret_values
from torchyard.shared.connection import AttemptOver, Connection
from torchyard.shared.failures import Failure
from torchyard.shared.masking import Masker
from torchyard.shared.plan import OPEN, LaunchPlan
from torchyard.worker.diagnosis import outcome, rank_notices
from torchyard.worker.diagnosis.context import DiagnosisContext, DoneWork
from torchyard.worker.diagnosis.limit_watch import LimitWatch, WatchedNode, limit_notices
from torchyard.worker.files import interception, node_folders, rehearsal
from torchyard.worker.files.logs import LogShipper
from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.in_rank import sdk_v1_unsent
from torchyard.worker.in_rank.rank_hook import VARIABLE as ERRORS_VARIABLE
from torchyard.worker.launch import ranks
from torchyard.worker.launch import variables as variables_of
from torchyard.worker.launch.launch_ports import MPI
from torchyard.worker.launch.ranks import Gang, Rank, RankExit
from torchyard.worker.node import delivery, supervisor
from torchyard.worker.node.preparation import Prepared, prepare
from torchyard.worker.relay.relay import Relay
from torchyard.worker.server.control import (
    HANG,
    OVER,
    PEER_LOST,
    RELEASE,
    SERVED,
    SIGNAL,
    TIMEOUT,
    Control,
)
from torchyard.worker.server.events import Events
from torchyard.worker.system import cgroups, networks, processes, rank_limits, temporary
from torchyard.worker.system.memory_kills import MemoryKills
from torchyard.worker.system.rank_limits import RankLimits

if TYPE_CHECKING:
    from torchyard.worker.diagnosis.watches import Watches
    from torchyard.worker.interactive.node_access import NodeAccess
    from torchyard.worker.interactive.service_programs import NodeServices
    from torchyard.worker.launch.image_root import Root
    from torchyard.worker.launch.mpi import MpiLaunch
    from torchyard.worker.node.checkpoint_delivery import CheckpointDelivery
    from torchyard.worker.node.enclosure import Enclosure
    from torchyard.worker.node.peer_copies import PeerCopies
    from torchyard.worker.node.resumption import Resumption
    from torchyard.worker.node.system_metrics import SystemMetrics
    from torchyard.worker.preflight.preflight import Preflight
    from torchyard.worker.preflight.rendezvous import Rendezvous
    from torchyard.worker.relay.server_gate import ServerGate


class Node:
    """Lives as long as its worker process; `run` is called once, in the main thread."""

    def __init__(self, plan: LaunchPlan, node: int, folder: Path, base: Mapping[str, str]) -> None:
        self._plan = plan
        self._node = node
        self._base = base
        self._folders = NodeFolders(folder)
        self._control = Control()
        self._link = Connection.of_plan(plan, base)
        self._gang = Gang(
            processes.mark(plan.attempt_id, node),
            self._grace_s,
            self._rank_exited,
            self._stopping,
            lambda: self._control.urgent,
            lambda exit: outcome.forgive(exit, self._context, plan.command),
        )
        node_folders.make_folders(self._folders)
        spool = self._folders.spool
        masker = _masker(plan, base)
        self._events = Events(
            self._link, node, spool, self._control, masker=masker, watched=plan.hang_after_s > 0
        )
        self._relay = Relay(self._link, plan, node, spool, self._notice, environ=base)
        self._logs = LogShipper(self._link, spool, masker)
        self._mpi_launch: MpiLaunch | None = None
        self._is_serving = False
        # A signal is reported at once, but not while what succeeded is being delivered.
        self._reporting = threading.Lock()
        self._finalizes = self._signal_reported = False
        self._enclosure: Enclosure | None = None
        self._gate: ServerGate | None = None
        self._context = DiagnosisContext(
            node,
            plan.world_size > 1,
            self._folders.work,
            self._folders.errors,
            MemoryKills(others=cgroups.memory_events(processes.mark(plan.attempt_id, node))),
            command=plan.command,
            own_path=plan.environment_variables.get("PATH", ""),
        )
        self._limit_watch: LimitWatch | None = None
        self._access: NodeAccess | None = None
        self._node_services: NodeServices | None = None
        self._system_metrics: SystemMetrics | None = None
        self._checkpoints: CheckpointDelivery | None = None
        self._peer_copies: PeerCopies | None = None
        self._resumption: Resumption | None = None

    def _grace_s(self) -> float:
        """Ranks that go on later have longer to save what they need for that."""
        goes_on = self._control.reason in ("preempted", "resized")
        return self._plan.preemption_grace_s if goes_on else self._plan.grace_s

    def run(self) -> int:
        """Run all steps and return the node's exit code."""
        self._begin()
        try:
            failure = self._train()
        except AttemptOver as over:
            print(f"the attempt is over: {over}", file=sys.stderr, flush=True)
            self._control.stop(OVER)
            failure = None
        except Failure as error:
            failure = error
        except Exception as error:
            traceback.print_exc()
            self._gang.end()
            failure = outcome.worker_failure(error)
        return self._end(failure)

    def recover(self, death: str) -> int:
        """Deliver what a dead worker left behind and report its death; its ranks have ended.

        Args:
            death: how the worker died, such as "was killed by signal 9".
        """
        self._control.handle_signals()
        supervisor.record_pids(self._folders.node)
        self._events.start()
        plan = self._plan
        self._watch_logs(
            ranks.plan_ranks(
                self._node, plan.processes_per_node, plan.world_size, self._folders.user_logs
            )
        )
        message = f"the worker of node {self._node} {death}"
        hint = (
            "it may have run out of memory: see `dmesg` on that machine, and "
            f"`system_logs/node-{self._node}.log` among the job's files"
        )
        return self._end(Failure("worker_lost", message, hint))

    def _begin(self) -> None:
        self._control.handle_signals(self._signaled)
        self._gang.guests.wake = self._control.wake
        self._control.on_tunnel = self._open_tunnel
        supervisor.record_pids(self._folders.node)
        self._events.post(
            "node_started",
            hostname=socket.gethostname(),
            pid=os.getpid(),
            addresses=_addresses(),
        )
        self._events.start()
        self._control.poll_server(self._link, self._node)

    def _open_tunnel(self) -> None:
        """Called in the thread that polls the server."""
        if self._access is None:
            from torchyard.worker.interactive.node_access import NodeAccess  # Few jobs are visited.

            self._access = NodeAccess(
                self._link, self._node, self._gang.guests, self._node_services
            )
        self._access.open()

    def _bring_environment(self) -> None:
        """On a node that may not see the server's disk: it may take minutes."""
        from torchyard.worker.files import node_cache, node_environment

        plan, cache = self._plan, node_cache.of_plan(self._plan, self._base)
        self._plan = node_environment.bring(
            plan,
            self._link,
            cache,
            lambda: self._control.stopped,
            lambda message: self._notice(f"node {self._node}: {message}"),
            in_place=self._base.get(node_cache.COPY_VARIABLE) != "1",
        )

    def _train(self) -> Failure | None:
        if self._plan.node_folder:
            try:
                self._bring_environment()
            except OSError:
                if self._control.stopped:
                    return self._stopped()
                raise
        preflight = self._preflight()
        self._enclose()
        self._open_gate()
        prepared = prepare(
            self._link,
            self._plan,
            self._node,
            self._folders,
            self._relay,
            self._control,
            preflight,
            self._base,
        )
        if prepared is None:
            return self._stopped()
        variables = prepared.setup.layout.environment_variables
        self._plan = replace(self._plan, environment_variables=dict(variables))
        self._start_ranks(prepared)
        watches = self._watches(prepared)
        limit_watch = self._limit_watch
        assert limit_watch is not None
        limit_watch.other = watches
        if watches is None and self._plan.stall_notice_s > 0:
            limit_watch.later = lambda: self._make_watches(prepared)
        try:
            failed = self._gang.supervise(
                self._control,
                self._plan.timeout_s,
                lambda exit: outcome.is_consequence(exit, self._context),
                limit_watch,
                self._hold if self._plan.hold_s > 0 else None,
            )
        finally:
            if self._system_metrics is not None:
                self._system_metrics.close()
            if self._checkpoints is not None:
                self._checkpoints.close()
            if self._resumption is not None:
                self._resumption.close()
            if self._node_services is not None:
                self._node_services.close()
            if prepared.port is not None:
                prepared.port.close()
            prepared.mark.close()
            prepared.launch_ports.close()
            if self._gate is not None:
                self._gate.close()
            if self._enclosure is not None:
                self._enclosure.close()
        return limit_watch.explain(self._result_of_ranks(failed is not None, watches))

    def _hold(self) -> None:
        """Stay a while after the ranks have ended, for people to look around."""
        until = time.time() + self._plan.hold_s
        ended = "ended" if not self._gang.first_failure else "failed"
        self._notice(
            f"node {self._node}: the script {ended}; the job is held until "
            f"{time.strftime('%H:%M UTC', time.gmtime(until))} for `yard job shell`: "
            "`yard job release` ends that"
        )
        self._events.post("node_held", until=int(until))
        own_failure = self._gang.first_failure is not None
        while not self._control.ends_hold(own_failure):
            left_s = until - time.time()
            if left_s <= 0:
                return
            self._control.wait(min(left_s, 5.0))
            self._gang.reap()

    def _enclose(self) -> None:
        """Make the ranks' own network, where the job is not to have the machine's."""
        if self._plan.limits.network == OPEN:
            return
        from torchyard.worker.node.enclosure import Enclosure  # Few jobs have one.

        enclosure = Enclosure(self._plan, self._node, lambda: self._control.stopped)
        self._gang.network, self._relay.listener = enclosure.space, enclosure.relay_listener
        self._enclosure = enclosure
        self._notice(enclosure.notice)

    def _open_gate(self) -> None:
        """Let Azure's clients on a node of another machine reach the server."""
        if self._plan.gate is None:
            return
        from torchyard.worker.node import client_gate  # Not on the server's machine.

        listener = self._enclosure.client_listener if self._enclosure else None
        self._plan, self._gate = client_gate.open_gate(
            self._plan, self._plan.gate, self._folders.node, self._base, listener
        )
        self._relay.plan = self._plan

    def _result_of_ranks(self, rank_failed: bool, watches: Watches | None) -> Failure | None:
        """The node's failure, if any, after all ranks have ended."""
        exits, command = self._gang.exits, self._plan.command
        for message in outcome.hidden_failures(exits, self._context, command):
            self._notice(message)
        if not rank_failed and not self._control.stopped:
            self._tell_silent_faults()
        reason = self._control.reason
        if watches is not None and reason == HANG:
            return watches.hang()
        if watches is not None and not rank_failed and reason == TIMEOUT:
            return watches.timeout()
        if reason == SERVED or (reason == RELEASE and not rank_failed):
            return None
        launch = self._mpi_launch if self._gang.launcher_failed else None
        if rank_failed or launch is not None or reason in ("failed", PEER_LOST):
            failure = outcome.root_cause(self._gang, self._context, self._node, self._folders.work)
            if failure is not None:
                return failure
        if self._control.stopped:
            return self._stopped()
        if launch is not None:
            return launch.failure()
        return None

    def _tell_silent_faults(self) -> None:
        plan = self._plan
        sizes = self._limit_watch.log_sizes if self._limit_watch is not None else ()
        if plan.world_size == 1 and not any(sizes):
            return  # as of many a step of a pipeline, which need not pay for it
        outputs = self._folders.work / "outputs"
        named = self._folders.outputs
        has_files = any(any(folder.iterdir()) for folder in (outputs, named) if folder.is_dir())
        work = DoneWork(
            plan.command,
            is_whole=plan.node_count == 1,
            has_logged=has_files or self._relay.logged > 0,
            has_gpus=bool(plan.gpus_per_node or plan.rehearsed_gpus)
            or any(_is_gpu(name) for name in os.listdir("/dev")),
            lost_figures=self._relay.lost_figures,
        )
        ranks = [exit.rank for exit in self._gang.exits]
        for message in outcome.silent_faults(ranks, self._context, work):
            self._notice(message)

    def _preflight(self) -> Preflight | None:
        mode = self._plan.preflight
        if mode == "off" or (self._plan.world_size == 1 and mode != "always"):
            return None
        from torchyard.worker.preflight.preflight import Preflight  # Jobs of one rank have none.

        return Preflight(self._plan, self._node, self._base, self._folders.node, self._events.post)

    def _watches(self, prepared: Prepared) -> Watches | None:
        """Those that are needed from the start, if any."""
        plan = self._plan
        limits = plan.hang_after_s, plan.rendezvous_timeout_s, plan.timeout_s
        return self._make_watches(prepared) if max(limits) > 0 or plan.world_size > 1 else None

    def _make_watches(self, prepared: Prepared) -> Watches:
        from torchyard.worker.diagnosis.watches import Watches  # Short jobs have none.

        return Watches(
            self._plan,
            self._context,
            prepared.setup.rendezvous,
            self._control,
            self._folders.user_logs,
            self._logs.watch,
            self._events.post,
            self._progress,
        )

    def _progress(self) -> object:
        """What changes when the ranks print or log something."""
        logs = self._limit_watch.log_sizes if self._limit_watch is not None else ()
        return logs, self._relay.logged

    def _start_ranks(self, prepared: Prepared) -> None:
        plan, node, folders = self._plan, self._node, self._folders
        shared = variables_of.node_variables(self._base, plan, node, prepared.setup)
        planned = ranks.plan_ranks(
            node, plan.processes_per_node, plan.world_size, folders.user_logs
        )
        rendezvous = prepared.setup.rendezvous
        environments = {rank: self._rank_variables(rank, shared, rendezvous) for rank in planned}
        self._context = replace(self._context, search_path=self._search_path(environments))
        os.chdir(folders.work)
        if prepared.port is not None:
            prepared.port.release()
        prepared.launch_ports.release()
        layout = prepared.setup.layout
        for message in layout.notices:
            self._notice(message)
        self._limit_ranks(planned)
        rehearsal.announce(plan, planned)
        interception.announce(plan, planned)
        root = self._image_root(prepared)
        if plan.distribution == MPI and plan.world_size > 1:
            started = self._launch_by_mpi(prepared, shared, environments)
        else:
            with self._handing_in_sockets(prepared.setup.temporary):
                started = self._gang.start(layout.command, environments, layout.mounts, root)
        self._events.post("ranks_started", ranks=[_started(pid, started[pid]) for pid in started])
        self._report_if_serving()
        self._start_services(prepared)
        self._sample_use()
        self._deliver_checkpoints(prepared)
        self._tell_resumption(Path(shared[variables_of.RESUMED_VARIABLE]))
        self._watch_logs(planned)

    def _handing_in_sockets(self, temporary: Path) -> AbstractContextManager[None]:
        if not any(service.is_handed for service in self._plan.services):
            return nullcontext()
        from torchyard.worker.interactive import handed_sockets  # Few jobs have some.

        return handed_sockets.handing_in(self._plan, self._node, temporary)

    def _deliver_checkpoints(self, prepared: Prepared) -> None:
        """Where the node's disk is not the server's, and what is on it may be lost."""
        if not self._plan.node_folder:
            return
        from torchyard.worker.node.checkpoint_delivery import CheckpointDelivery

        self._checkpoints = CheckpointDelivery(self._link, self._folders.work / "outputs")
        self._checkpoints.start()
        if prepared.launch_ports.copies is None:
            return
        from torchyard.worker.node import peer_copies, peer_keeper

        watch = self._limit_watch
        used_bytes = (lambda: 0) if watch is None else (lambda: watch.used_bytes)
        self._peer_copies = peer_copies.PeerCopies(
            self._plan,
            self._node,
            prepared.setup.rendezvous,
            prepared.launch_ports,
            self._folders.peer_copies,
            self._checkpoints,
            peer_keeper.Space(self._plan.limits.disk_bytes, used_bytes),
            self._notice,
        )
        self._peer_copies.start()

    def _tell_resumption(self, note: Path) -> None:
        """Only a later attempt logs again what an earlier one had logged."""
        if self._node > 0 or self._plan.variables.get("TORCHYARD_ATTEMPT_NUMBER", "1") == "1":
            return
        from torchyard.worker.node.resumption import Resumption

        self._resumption = Resumption(self._plan.job, note, self._relay.keep)
        self._resumption.start()

    def _sample_use(self) -> None:
        if self._plan.system_metrics_s <= 0:
            return
        # Not before the ranks have started, which would wait for it.
        from torchyard.worker.node.system_metrics import Places, SystemMetrics

        mark = processes.mark(self._plan.attempt_id, self._node)
        folders = Places(self._folders.node, cgroups.folders_of(mark))
        self._system_metrics = SystemMetrics(
            self._plan, self._node, folders, self._gang.rank_numbers, self._relay.keep_samples
        )
        self._gang.bystanders = self._system_metrics.bystanders
        self._system_metrics.start()

    def _start_services(self, prepared: Prepared) -> None:
        if not self._plan.services:
            return
        from torchyard.worker.interactive.service_programs import (
            NodeServices,  # Few jobs have some.
        )

        logs = self._folders.node / "services"
        logs.mkdir(mode=0o700, exist_ok=True)
        self._node_services = NodeServices(
            self._plan,
            self._node,
            self._gang.guests,
            prepared.setup.temporary,
            self._folders.work,
            logs,
            lambda body: self._events.post("service", **body),
            self._gang.network,
        )
        for log, name in self._node_services.start():
            self._logs.watch(log, name)

    def _limit_ranks(self, planned: Sequence[Rank]) -> None:
        """Limit what ranks that are about to start may have, and tell what can't be held here."""
        plan, mark = self._plan, processes.mark(self._plan.attempt_id, self._node)
        ceiling = cgroups.Ceiling(plan.cores, plan.memory_bytes, plan.limits.processes)
        in_force = cgroups.limit(mark, ceiling)
        for message in limit_notices(self._node, plan, in_force):
            self._notice(message)
        logs = tuple(rank.log for rank in planned)
        node = WatchedNode(self._node, mark, self._folders, logs, in_force.processes)
        # Before the first rank, which may fill the disk within milliseconds.
        self._limit_watch = LimitWatch(node, plan.limits, self._notice)
        processes_limit = 0 if in_force.processes else plan.limits.processes
        self._gang.limits = RankLimits(plan.limits.open_files, rank_limits.of_user(processes_limit))

    def _launch_by_mpi(
        self,
        prepared: Prepared,
        shared: Mapping[str, str],
        environments: Mapping[Rank, Mapping[str, str]],
    ) -> dict[int, Rank]:
        from torchyard.worker.launch.mpi import MpiLaunch  # Other jobs need no Open MPI.

        setup = prepared.setup
        self._mpi_launch = MpiLaunch(self._plan, self._node, self._folders, setup, self._gang)
        self._logs.watch(self._mpi_launch.log, self._mpi_launch.log_name)
        return self._mpi_launch.run(
            shared, environments, self._control, prepared.launch_ports.remote_start
        )

    def _watch_logs(self, planned: Sequence[Rank]) -> None:
        if self._plan.node_folder:
            # Elsewhere the server reads it from its own disk.
            self._logs.watch(
                self._folders.node / "worker.log", f"system_logs/node-{self._node}.log"
            )
        for rank in planned:
            self._logs.watch(rank.log, rank.log_name)
        # Nodes may write files of the same name; only node 0's keep theirs unchanged.
        prefix = "logs" if self._node == 0 else f"logs/node-{self._node}"
        self._logs.watch_folder(self._folders.work / "logs", prefix)
        self._logs.start()

    def _rank_variables(
        self, rank: Rank, shared: Mapping[str, str], rendezvous: Rendezvous
    ) -> dict[str, str]:
        errors = self._context.records_folder(rank.rank)
        errors.mkdir(mode=0o700, parents=True, exist_ok=True)
        variables = variables_of.rank_variables(
            shared, self._plan, self._node, rank.local_rank, rendezvous
        )
        if self._plan.image:
            variables = variables_of.with_hooks(variables, self._folders.hooks)
        return {**variables, ERRORS_VARIABLE: str(errors)}

    def _search_path(self, environments: Mapping[Rank, Mapping[str, str]]) -> str:
        """The ranks' PATH; of an image, as this process sees its folders."""
        path = next(iter(environments.values()), {}).get("PATH", "")
        root = self._plan.image.rootfs if self._plan.image is not None else ""
        return os.pathsep.join(root + folder for folder in path.split(os.pathsep))

    def _image_root(self, prepared: Prepared) -> Root | None:
        """The root file system of the ranks, if the job runs in an image."""
        if self._plan.image is None:
            return None
        from torchyard.worker.launch import image_root  # Few jobs run in an image.

        setup = prepared.setup
        root = image_root.node_root(self._plan, self._folders, setup, self._base)
        for message in root.notices:
            self._notice(f"node {self._node}: {message}")
        return root

    def _rank_exited(self, exit: RankExit) -> None:
        if self._mpi_launch is not None:
            self._mpi_launch.rank_exited(exit)
        failed = exit.exit_code and not exit.stop_requested
        if failed and not self._context.listeners:
            self._context = replace(self._context, listeners=outcome.listeners(self._gang))
        consequence = failed and outcome.is_consequence(exit, self._context)
        self._events.post(
            "rank_exited",
            rank=exit.rank.rank,
            local_rank=exit.rank.local_rank,
            exit_code=exit.exit_code,
            signal=exit.signal or None,
            **({"consequence": True} if consequence else {}),
        )
        if exit.aborted_late:
            self._notice(outcome.late_abort_notice(exit))
        for message in rank_notices.read(self._context.records_folder(exit.rank.rank)):
            self._notice(message)
        self._report_if_serving()

    def _report_if_serving(self) -> None:
        """Report that only parameter servers are left here, which do not end by themselves."""
        if self._plan.parameter_servers and not self._is_serving:
            from torchyard.worker.launch import tensorflow_tasks  # Only TensorFlow jobs have them.

            ended = {exit.rank.local_rank for exit in self._gang.exits if not exit.exit_code}
            if tensorflow_tasks.only_servers_left(self._plan, self._node, ended):
                self._is_serving = True
                self._events.post("node_serving")

    def _notice(self, message: str) -> None:
        self._events.post("notice", message=message)

    def _stopping(self, reason: str) -> None:
        # Other nodes need not wait for this node's grace period.
        self._events.post("node_stopping", reason=reason)

    def _signaled(self) -> None:
        # Nodes that wait for this one in the rendezvous must not wait in vain.
        with self._reporting:
            if not self._finalizes:
                self._signal_reported = True
                self._stopping(SIGNAL)

    def _stopped(self) -> Failure:
        """The failure of a node that was stopped before its ranks had succeeded."""
        control, folder = self._control, self._folders.node
        if control.reason != SIGNAL or control.signal is None:
            return outcome.stopped(control.reason, self._node)
        if (folder / node_records.STOP).exists():
            return outcome.stopped(SIGNAL, self._node)
        cause = supervisor.describe_signal(folder, control.signal)
        return outcome.told_to_end(cause, control, self._node)

    def _end(self, failure: Failure | None) -> int:
        """Deliver what is left and finish; return the exit code."""
        with self._reporting:
            self._finalizes = True
        if failure is None and self._signal_reported:
            failure = self._stopped()
        failure = self._deliver(failure)
        exit_code = failure.exit_code if failure else 0
        self._finish(failure, exit_code)
        return exit_code

    def _deliver(self, failure: Failure | None) -> Failure | None:
        """Deliver what is left; return `failure`, or else the delivery's own failure."""
        if self._control.over:
            return failure
        self._events.post("node_finalizing")
        unreachable_s = self._events.unreachable_s
        if self._limit_watch is not None and self._limit_watch.disk_full:
            # The server may need the space for what is delivered to it.
            node_folders.free_space(self._folders)
        self._store_unsent_metrics()
        missing: list[Path] = []
        try:
            undelivered = delivery.deliver(
                self._link,
                self._plan,
                self._folders,
                (self._logs, self._relay),
                self._control,
                succeeded=failure is None,
                is_sent=self._checkpoints.is_sent if self._checkpoints else lambda _: False,
                on_missing=missing.append,
            )
        except AttemptOver:
            self._control.stop(OVER)
            return failure
        except Exception as error:
            traceback.print_exc()
            undelivered = outcome.worker_failure(error)
        self._tell_what_is_left_out(missing)
        if self._peer_copies is not None and not self._settle_peer_copies(undelivered is None):
            return failure
        if undelivered is not None:
            self._notice(undelivered.message)
            failure = failure or undelivered
        early = None
        if self._plan.world_size > self._plan.processes_per_node and self._gang.exits:
            early = outcome.first_early_exit(self._gang, self._context)
        self._events.post(
            "node_exited",
            # The wait for a server that was down is not the job's time.
            earlier_s=self._events.unreachable_s - unreachable_s,
            exit_code=failure.exit_code if failure else 0,
            error=failure.to_dict() if failure else None,
            **({"early_exit": early} if early is not None else {}),
        )
        self._events.deliver()
        return failure

    def _tell_what_is_left_out(self, missing: Sequence[Path]) -> None:
        if not missing:
            return
        from torchyard.worker.files import left_out  # Few jobs have any.

        for message in left_out.notices(self._folders, missing):
            self._notice(f"node {self._node}: {message}")

    def _settle_peer_copies(self, delivered: bool) -> bool:
        """False if the attempt is over; what goes wrong with another node's part is not ours."""
        assert self._peer_copies is not None
        try:
            self._peer_copies.finish(self._link, delivered, self._control)
        except AttemptOver:
            self._control.stop(OVER)
            return False
        except Exception:
            traceback.print_exc()
        return True

    def _store_unsent_metrics(self) -> None:
        """Store metrics that SDK v1 still held in Pythons that were killed or exited abruptly."""
        if not sdk_v1_unsent.files_in(self._folders.errors):
            return
        from torchyard.shared import sdk_v1_records  # Few jobs log through SDK v1.

        for run, metric in sdk_v1_unsent.left(self._folders.errors):
            try:
                self._relay.keep(sdk_v1_records.logged(run, {"values": [metric]}))
            except Exception as error:
                # Everything else is still delivered.
                print(
                    f"could not store a metric of run `{run}`: {error!r}",
                    file=sys.stderr,
                    flush=True,
                )

    def _finish(self, failure: Failure | None, exit_code: int) -> None:
        if self._control.over:
            print("the attempt is over on the server", file=sys.stderr, flush=True)
        self._events.close()
        node = self._folders.node
        temporary.forget(node)
        # The server collects metrics that were not delivered when it cleans up the node.
        node_folders.clean(self._folders, keep_spool=self._relay.left > 0)
        body = {
            "exit_code": exit_code,
            "error": failure.to_dict() if failure else None,
            "over": self._control.over,
        }
        new_file = node / "exit.json.new"
        try:
            new_file.write_text(json.dumps(body))
            new_file.replace(node / "exit.json")
        except OSError as error:
            # The server already has the last event; without this file the node counts as lost.
            print(f"could not write exit.json: {error}", file=sys.stderr, flush=True)


def _started(pid: int, rank: Rank) -> dict[str, int]:
    return {"rank": rank.rank, "local_rank": rank.local_rank, "pid": pid}


def _masker(plan: LaunchPlan, base: Mapping[str, str]) -> Masker:
    """Masks the job's secrets, and inherited variables whose names suggest a secret."""
    variables = {**base, **plan.environment_variables}
    values = secret_values.of_environment(variables, plan.secrets, plan.not_secrets)
    return Masker(secret_values.written(values))


def _is_gpu(device: str) -> bool:
    return device.startswith("nvidia") and device[len("nvidia") :].isdigit()


def _addresses() -> list[str]:
    return [address for address in networks.interfaces().values() if address != networks.LOOPBACK]
