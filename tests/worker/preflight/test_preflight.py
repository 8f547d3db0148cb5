"""Preflight: findings in the facts of nodes, and probes of the connections between them."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchyard.executors import device_locks, devices
from torchyard.executors.local import LocalExecutor
from torchyard.shared.failures import Failure
from torchyard.shared.plan import DevicePlan, LaunchPlan
from torchyard.worker.preflight import checks, links, node_facts
from torchyard.worker.preflight.checks import ERROR, WARNING, Finding, RankLayout
from torchyard.worker.preflight.links import LinkProbe
from torchyard.worker.preflight.node_facts import Facts, SystemPaths, gather
from torchyard.worker.preflight.ports import HeldPort, hold_port
from torchyard.worker.preflight.preflight import Preflight
from worker.bench import Bench
from worker.files.test_node_folders import PLAN

GIB = 1 << 30
HEALTHY = Facts(
    node=0,
    host="a",
    machine="boot-a",
    network="boot-a:1",
    address="10.0.0.1",
    interfaces={"lo": ["127.0.0.1"], "eth0": ["10.0.0.1"]},
    mtu=1500,
    disk_free_bytes=50 * GIB,
    files_free=1_000_000,
    shm_bytes=8 * GIB,
    shm_free_bytes=8 * GIB,
    memory_free_bytes=16 * GIB,
)


def two(**changes: Any) -> list[Facts]:
    """Two nodes; `changes` are those of the second."""
    second = replace(
        HEALTHY,
        node=1,
        host="b",
        machine="boot-b",
        network="boot-b:1",
        address="10.0.0.2",
        interfaces={"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"]},
    )
    return [HEALTHY, replace(second, **changes)]


def both(**changes: Any) -> list[Facts]:
    return [replace(node, **changes) for node in two()]


def find(facts: list[Facts], ranks: int = 1, single_host: bool = False) -> list[Finding]:
    return checks.run_checks(facts, RankLayout(ranks, single_host))


def test_healthy_nodes_have_no_findings() -> None:
    assert find(two()) == []
    assert find([HEALTHY]) == []
    gpus = [replace(node, devices=["0", "1"], backend="nccl") for node in two()]
    assert find(gpus, ranks=2) == []


WRONG: list[tuple[str, list[Facts], str, str, tuple[int, ...]]] = [
    ("NCCL, no GPU anywhere", both(backend="nccl"), "nccl_without_gpu", ERROR, (0, 1)),
    (
        "NCCL, a node without GPU",
        [replace(node, backend="nccl", devices=["0"] * (node.node == 0)) for node in two()],
        "nccl_without_gpu",
        ERROR,
        (1,),
    ),
    (
        "NCCL, torch's CPU build",
        both(backend="nccl", devices=["0"], torch="2.13.0+cpu"),
        "torch_without_gpu",
        ERROR,
        (0, 1),
    ),
    (
        "two nodes of one machine with one GPU",
        both(backend="nccl", devices=["GPU-1"], machine="boot-a"),
        "ranks_share_gpu",
        ERROR,
        (0, 1),
    ),
    (
        "the same without a requested backend",
        both(devices=["GPU-1"], machine="boot-a"),
        "ranks_share_gpu",
        WARNING,
        (0, 1),
    ),
    (
        "NCCL's interface is missing",
        [
            replace(node, backend="nccl", devices=["0"], nccl_names="=eth0", interfaces={name: []})
            for node, name in zip(two(), ("eth0", "ens5"), strict=True)
        ],
        "interface_missing",
        ERROR,
        (1,),
    ),
    (
        "the same under gloo",
        both(backend="gloo", nccl_names="ib"),
        "interface_missing",
        WARNING,
        (0, 1),
    ),
    (
        "the same without a requested backend, for NCCL",
        both(nccl_names="ib"),
        "interface_missing",
        WARNING,
        (0, 1),
    ),
    ("gloo's interface is missing", two(gloo_names="eth9"), "interface_missing", ERROR, (1,)),
    (
        "gloo's under NCCL",
        both(backend="nccl", devices=["0"], gloo_names="eth9"),
        "interface_missing",
        WARNING,
        (0, 1),
    ),
    ("only loopback", two(address="127.0.0.1"), "no_own_address", ERROR, (1,)),
    ("the same address twice", two(address="10.0.0.1"), "address_shared", ERROR, (0, 1)),
    (
        "two versions of torch",
        [replace(node, torch=f"2.1{node.node}.0") for node in two()],
        "torch_versions_differ",
        ERROR,
        (0, 1),
    ),
    ("a full disk", two(disk_free_bytes=1 << 20), "disk_short", ERROR, (1,)),
    ("no more files", two(files_free=3), "disk_short", ERROR, (1,)),
    ("a disk nearly full", two(disk_free_bytes=GIB), "disk_short", WARNING, (1,)),
    ("Docker's /dev/shm", both(shm_free_bytes=64 << 20), "shm_small", WARNING, (0, 1)),
    ("little memory", two(memory_free_bytes=300 << 20), "memory_short", WARNING, (1,)),
    ("two MTUs", two(mtu=9000), "mtu_differs", WARNING, (0, 1)),
]


@pytest.mark.parametrize(("label", "facts", "code", "severity", "nodes"), WRONG)
def test_a_finding_names_the_nodes_and_has_a_hint(
    label: str, facts: list[Facts], code: str, severity: str, nodes: tuple[int, ...]
) -> None:
    (finding,) = find(facts)
    assert (finding.code, finding.severity, finding.nodes) == (code, severity, nodes), finding
    assert all(str(node) in finding.message for node in nodes)
    assert finding.hint and not finding.message.endswith(".")
    assert code in {row[0] for row in checks.CODES}


def test_more_ranks_than_gpus_are_an_error_with_nccl() -> None:
    facts = both(backend="nccl", devices=["0", "1"])
    (finding,) = find(facts, ranks=4)
    assert (finding.code, finding.severity) == ("ranks_share_gpu", ERROR)
    assert "4 ranks but 2 GPUs" in finding.message and "to 2" in finding.hint
    assert find(both(backend="gloo", devices=["0"]), ranks=4) == []
    assert [node.severity for node in find(both(devices=["0"]), ranks=4)] == [WARNING]


def test_memory_counts_all_ranks_of_a_machine() -> None:
    facts = both(memory_free_bytes=2 * GIB, machine="boot-a")
    assert find(facts, ranks=4) == []
    assert [node.code for node in find(facts, ranks=4, single_host=True)] == ["memory_short"]


def test_errors_come_first() -> None:
    finding = find(two(mtu=9000, disk_free_bytes=0, shm_free_bytes=0))
    assert [node.severity for node in finding] == [ERROR, WARNING, WARNING]


@pytest.mark.parametrize(
    ("setting", "matches"),
    [
        ("", True),
        ("eth", True),
        ("eth0", True),
        ("=eth0", True),
        ("=eth", False),
        ("ib", False),
        ("ib,eth", True),
        ("=ib0,eth0", True),
        ("^docker", True),
        ("^eth,lo", False),
        ("^=eth", True),
        ("^=eth0,lo", False),
        ("eth0:29500", True),
        ("enp", False),
    ],
)
def test_nccls_interface_setting_is_read_as_nccl_does(setting: str, matches: bool) -> None:
    assert checks.nccl_finds(setting, ["lo", "eth0"]) is matches


def test_gloos_interface_setting_is_read_as_gloo_does() -> None:
    interfaces = ["lo", "eth0"]
    assert checks.gloo_misses("", interfaces) == []
    assert checks.gloo_misses("eth0,lo", interfaces) == []
    # Measured with torch 2.13: no prefixes, and every name must exist.
    assert checks.gloo_misses("eth", interfaces) == ["eth"]
    assert checks.gloo_misses("eth0,ib0", interfaces) == ["ib0"]


@pytest.mark.parametrize(
    ("ahead_s", "uncertainty_s", "severity"),
    [(0.5, 0.1, ""), (-3.0, 0.1, WARNING), (3.0, 2.0, ""), (-400.0, 0.1, ERROR)],
)
def test_a_clock_difference_is_a_warning_or_an_error(
    ahead_s: float, uncertainty_s: float, severity: str
) -> None:
    finding = checks.clock_finding(two()[1], ahead_s, uncertainty_s)
    assert (finding.severity if finding else "") == severity
    if finding:
        assert ("behind" if ahead_s < 0 else "ahead") in finding.message


def test_facts_survive_a_round_trip_through_json() -> None:
    body = {**HEALTHY.to_dict(), "of_a_later_version": 1}
    assert node_facts.from_dict(body) == HEALTHY


def test_facts_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemTotal: 1 kB\nMemAvailable:    2048 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    _write(tmp_path / "sys/fs/cgroup/a/b/memory.max", "max\n")
    _write(tmp_path / "sys/fs/cgroup/a/memory.max", "1000000\n")
    _write(tmp_path / "sys/fs/cgroup/a/memory.current", "700000\n")
    stat = "file 400000\ninactive_file 200000\nactive_file 100000\n"
    _write(tmp_path / "sys/fs/cgroup/a/memory.stat", stat)
    for name in ("nvidia1", "nvidia0", "nvidiactl"):
        _write(tmp_path / "dev" / name, "")
    _write(
        tmp_path / "env/lib/python3.11/site-packages/torch/version.py",
        "from typing import Optional\n__version__ = '2.13.0+cu130'\n"
        "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
    )
    plan = replace(
        PLAN,
        environment=str(tmp_path / "env"),
        environment_variables={"NCCL_SOCKET_IFNAME": "^lo", "DIST_BACKEND": "NCCL"},
    )
    paths = SystemPaths(tmp_path, tmp_path)
    facts = gather(plan, 1, {"GLOO_SOCKET_IFNAME": "x"}, tmp_path, "127.0.0.1", (7, "w"), paths)
    assert (facts.memory_free_bytes, facts.devices) == (600_000, ["0", "1"])
    assert (facts.torch, facts.torch_gpu) == ("2.13.0+cu130", "cuda")
    assert (facts.nccl_names, facts.gloo_names, facts.backend) == ("^lo", "x", "nccl")
    assert (facts.probe_port, facts.nonce, facts.node) == (7, "w", 1)
    assert "127.0.0.1" in facts.interfaces["lo"] and facts.mtu > 1000
    assert facts.disk_free_bytes > 0 and facts.shm_bytes >= facts.shm_free_bytes > 0
    with_hidden_gpus = gather(
        plan, 1, {"CUDA_VISIBLE_DEVICES": "1,-1,0"}, tmp_path, "", paths=paths
    )
    assert with_hidden_gpus.devices == ["1"]
    assert gather(plan, 1, {}, tmp_path / "absent", "", paths=SystemPaths(tmp_path / "no")).torch


def test_devices_are_those_assigned_by_the_engine() -> None:
    gpu = DevicePlan("nvidia", 3, "GPU-3")
    plan = replace(PLAN, devices=[[gpu], []])
    paths = SystemPaths(Path("/nowhere"))
    assert gather(plan, 0, {}, Path("/"), "", paths=paths).devices == ["3"]
    assert gather(plan, 1, {}, Path("/"), "", paths=paths).devices == []
    without_gpus = replace(plan, environment_variables={"CUDA_VISIBLE_DEVICES": ""})
    assert gather(without_gpus, 0, {}, Path("/"), "", paths=paths).devices == []


@pytest.mark.parametrize(
    ("changes", "backend"),
    [
        ({}, ""),
        ({"communication_backend": "nccl"}, "nccl"),
        ({"environment_variables": {"PL_TORCH_DISTRIBUTED_BACKEND": "Gloo"}}, "gloo"),
        ({"environment_variables": {"MPLBACKEND": "Agg", "BACKEND": "nccl"}}, "nccl"),
        ({"environment_variables": {"NCCL_DEBUG": "INFO"}}, ""),
        ({"communication_backend": "nccl", "rehearsed_gpus": 1}, "gloo"),
    ],
)
def test_the_requested_backend_is_read_from_the_job(changes: dict[str, Any], backend: str) -> None:
    assert node_facts.requested_backend(replace(PLAN, **changes)) == backend


class Cluster:
    """Several nodes on this machine that listen for probes."""

    def __init__(self, count: int) -> None:
        self.held_port = hold_port(6500, 6900)
        self.listeners = [[links.open_listener("127.0.0.1")] for _ in range(count)]
        self.facts = [
            Facts(
                node=node,
                address="127.0.0.1",
                probe_port=self.listeners[node][0].getsockname()[1],
                nonce=links.new_nonce(),
            )
            for node in range(count)
        ]
        self.listeners[0].append(self.held_port.listen())

    def probe(self, node: int, **options: Any) -> LinkProbe:
        return LinkProbe(self.facts, node, self.listeners[node], self.held_port.port, **options)

    def close(self) -> None:
        for listeners in self.listeners:
            listeners[0].close()
        self.held_port.close()


@pytest.fixture
def new_cluster() -> Iterator[Callable[[int], Cluster]]:
    clusters: list[Cluster] = []

    def make(count: int) -> Cluster:
        clusters.append(Cluster(count))
        return clusters[-1]

    yield make
    for node in clusters:
        node.close()


def test_no_node_passes_before_all_are_ready(new_cluster: Callable[[int], Cluster]) -> None:
    cluster = new_cluster(4)
    passed: list[int] = []

    def go(node: int) -> list[links.ProbeResult]:
        probe = cluster.probe(node)
        results = probe.probe_all()
        if node == 3:
            time.sleep(0.2)  # time to pass wrongly
            assert passed == [], "a node passed before the last one was ready"
        assert probe.wait_for_all() == []
        passed.append(node)
        probe.close()
        return results

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(go, range(4)))
    assert [len(node) for node in results] == [3, 4, 4, 4]
    assert not any(result.error for node in results for result in node)
    assert {result.port for node in results for result in node if result.is_rendezvous_port} == {
        cluster.held_port.port
    }
    # The rendezvous port is still held, and free as soon as it is released.
    cluster.held_port.stop_listening()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cluster.held_port.port), 60.0)
    with pytest.raises(Failure):
        hold_port(cluster.held_port.port, cluster.held_port.port)
    cluster.held_port.close()
    hold_port(cluster.held_port.port, cluster.held_port.port).close()


def test_another_programs_port_is_not_taken_for_a_nodes(
    new_cluster: Callable[[int], Cluster],
) -> None:
    cluster = new_cluster(2)
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def serve() -> None:
            sock, _ = stranger.accept()
            with sock:
                sock.recv(100)
                sock.sendall(b"220 mail.example.org ESMTP\n")

        def hang_up() -> None:
            cluster.listeners[0][1].setblocking(True)
            cluster.listeners[0][1].accept()[0].close()

        threads = [threading.Thread(target=each) for each in (serve, hang_up)]
        for thread in threads:
            thread.start()
        cluster.facts[0] = replace(cluster.facts[0], probe_port=stranger.getsockname()[1])
        probe = cluster.probe(1, answer_s=60.0)
        results = probe.probe_all()
        probe.close()
        for thread in threads:
            thread.join()
    unrelated, rendezvous = sorted(results, key=lambda result: result.is_rendezvous_port)
    assert "another program answers on that port" in unrelated.error
    # Node 0 hangs up here, which does not make it a blocked port.
    assert rendezvous.hung_up


def test_a_wrong_nonce_gets_no_answer(new_cluster: Callable[[int], Cluster]) -> None:
    cluster = new_cluster(2)
    stopping = threading.Event()
    probe = cluster.probe(0, is_stopped=stopping.is_set)

    def wait() -> None:
        with pytest.raises(OSError, match="stopped"):
            probe.wait_for_all()

    thread = threading.Thread(target=wait)
    thread.start()
    with socket.create_connection(("127.0.0.1", cluster.facts[0].probe_port), 60.0) as stranger:
        stranger.sendall(b"torchyard-preflight-1 guessed nonce 1\n")
        with pytest.raises(ConnectionResetError):
            stranger.recv(100)
    stopping.set()
    thread.join()
    probe.close()


def test_a_node_that_hung_up_is_not_reported_as_a_blocked_port(
    new_cluster: Callable[[int], Cluster],
) -> None:
    cluster = new_cluster(2)

    def hang_up(listener: socket.socket) -> None:
        listener.setblocking(True)
        listener.accept()[0].close()

    threads = [
        threading.Thread(target=hang_up, args=(listener,)) for listener in cluster.listeners[0]
    ]
    for thread in threads:
        thread.start()
    probe = cluster.probe(1)
    results = probe.probe_all()
    probe.close()
    for thread in threads:
        thread.join()
    assert len(results) == 2 and all(result.hung_up for result in results)


def test_a_closed_port_is_reported(new_cluster: Callable[[int], Cluster]) -> None:
    cluster = new_cluster(2)
    cluster.listeners[0][0].close()
    probe = cluster.probe(1, answer_s=0.2)
    blocked = links.failures_by_node(probe.probe_all())
    probe.close()
    # Node 0 does not answer here, and a connection without an answer is not a blocked port.
    (unanswered,) = [result for result in blocked[0] if result.hung_up]
    assert "no answer" in unanswered.error
    assert [(result.port, result.error) for result in blocked[0] if not result.hung_up] == [
        (cluster.facts[0].probe_port, "Connection refused")
    ]


def test_the_clock_offset_is_measured_against_node_0(new_cluster: Callable[[int], Cluster]) -> None:
    cluster = new_cluster(2)

    def go(node: int) -> links.ClockOffset | None:
        probe = cluster.probe(node, clock=lambda: time.time() - 700.0 * node)
        probe.probe_all()
        probe.wait_for_all()
        probe.close()
        return probe.clock_offset()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(go, range(2))
    assert first is None and second is not None
    assert abs(second.ahead_s + 700.0) <= second.uncertainty_s + 0.01


class RecordedEvents:
    """The events of one node."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: str, **body: Any) -> None:
        self.events.append((kind, body))

    @property
    def notices(self) -> list[str]:
        return [body["message"] for kind, body in self.events if kind == "notice"]

    @property
    def codes(self) -> list[str]:
        body = next(body for kind, body in self.events if kind == "preflight")
        return [finding["code"] for finding in body["findings"]]


def run_preflight(
    tmp_path: Path,
    plan: LaunchPlan,
    change: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda node, facts: facts,
    ahead_s: float = 0.0,
) -> list[tuple[RecordedEvents, Failure | None]]:
    """Run the preflight of all nodes of a plan in this process, over real sockets."""
    held_port: HeldPort = hold_port(6500, 6900)
    body = [RecordedEvents() for _ in range(plan.node_count)]
    preflights = []
    for node in range(plan.node_count):
        clock = (lambda: time.time() + ahead_s) if node else time.time
        preflights.append(Preflight(plan, node, {}, tmp_path, body[node], clock))
    facts = [
        change(node, preflight.describe_node("127.0.0.1", held_port if node == 0 else None))
        for node, preflight in enumerate(preflights)
    ]

    def go(node: int) -> Failure | None:
        try:
            preflights[node].check(facts, held_port.port, lambda: False)
        except Failure as failure:
            return failure
        finally:
            preflights[node].close()
        return None

    try:
        with ThreadPoolExecutor(plan.node_count) as pool:
            return list(zip(body, pool.map(go, range(plan.node_count)), strict=True))
    finally:
        held_port.close()


# Replaces the facts of this machine, which may have findings of its own.
def _healthy(node: int, facts: dict[str, Any]) -> dict[str, Any]:
    keys = ("node", "address", "door", "nonce", "backend", "devices", "torch", "torch_gpu")
    return {**HEALTHY.to_dict(), **{key: facts[key] for key in keys}, "machine": f"boot-{node}"}


@pytest.mark.slow
def test_a_clock_an_hour_off_fails_the_job(tmp_path: Path) -> None:
    first, second = run_preflight(tmp_path, PLAN, _healthy, ahead_s=3600.0)
    assert second[1] is not None and second[1].code == "clocks_apart"
    # A busy machine may be slow to answer.
    pattern = r"node 1 \(127.0.0.1\) has a clock that is (3599|3600)\.\d s ahead of node 0's"
    assert re.fullmatch(pattern, second[1].message)
    assert second[0].codes == ["clocks_apart"]
    # The server would tell node 0; here it notices that node 1 hung up.
    assert first[1] is not None and first[1].code == "preflight_timeout"


def test_a_clock_half_a_minute_off_is_a_notice(tmp_path: Path) -> None:
    first, second = run_preflight(tmp_path, PLAN, _healthy, ahead_s=30.0)
    assert (first[1], second[1], first[0].notices) == (None, None, [])
    (notice,) = second[0].notices
    assert notice.startswith("preflight: node 1") and re.search(r"(29|30)\.\d s ahead", notice)


def test_all_nodes_report_the_same_error_of_facts(tmp_path: Path) -> None:
    plan = replace(PLAN, communication_backend="nccl")
    finding = run_preflight(tmp_path, plan, _healthy)
    for body, failure in finding:
        assert failure is not None and failure.code == "nccl_without_gpu"
        assert body.codes == ["nccl_without_gpu"] and body.notices == []
        assert failure.details["preflight"][0]["nodes"] == (0, 1)


def test_the_ranks_start_if_preflight_only_warns(tmp_path: Path) -> None:
    plan = replace(PLAN, communication_backend="nccl", preflight="warn")
    first, second = run_preflight(tmp_path, plan, _healthy)
    assert (first[1], second[1]) == (None, None)
    assert len(first[0].notices) == 1 and second[0].notices == []


# The tests below run real workers.


def test_a_worker_refuses_nccl_without_a_gpu(bench: Bench) -> None:
    if any(name.startswith("nvidia") or name == "kfd" for name in os.listdir("/dev")):
        pytest.skip("this machine has a GPU")
    bench.run(bench.plan("echo started", node_count=2, communication_backend="nccl"))
    errors = [bench.exit(node)["error"] for node in (0, 1)]
    assert {error["code"] for error in errors} == {"nccl_without_gpu"}
    assert errors[0]["message"].startswith("nodes 0, 1 have no GPU, but the job requests NCCL")
    assert "ranks_started" not in bench.server.kinds(0) + bench.server.kinds(1)


@pytest.fixture
def with_gpus(bench: Bench) -> Bench:
    """A machine with two simulated GPUs."""
    locks = {device_locks.VARIABLE: str(bench.home / "locks"), devices.VARIABLE: "2"}
    bench.executor = LocalExecutor(bench.home, {**os.environ, **locks})
    return bench


def test_a_worker_refuses_two_ranks_on_one_gpu(with_gpus: Bench) -> None:
    bench = with_gpus
    plan = bench.plan(
        "echo started",
        node_count=2,
        processes_per_node=2,
        communication_backend="nccl",
        gpus_per_node=1,
    )
    bench.run(plan)
    error = bench.exit()["error"]
    assert error["code"] == "ranks_share_gpu"
    assert error["message"].startswith("nodes 0, 1 have 2 ranks but 1 GPU")
    assert "ranks_started" not in bench.server.kinds()


@pytest.mark.parametrize(("backend", "fails"), [("nccl", True), ("gloo", False)])
def test_a_worker_checks_its_interfaces(with_gpus: Bench, backend: str, fails: bool) -> None:
    bench = with_gpus
    plan = bench.plan(
        "echo started",
        node_count=2,
        communication_backend=backend,
        gpus_per_node=1,
        environment_variables={"NCCL_SOCKET_IFNAME": "=ib7"},
    )
    bench.run(plan)
    bodies = [event["body"] for event in bench.server.events[0]]
    if fails:
        assert bench.exit()["error"]["code"] == "interface_missing"
        assert "`NCCL_SOCKET_IFNAME==ib7`" in bench.exit()["error"]["message"]
        return
    assert bench.exit()["exit_code"] == 0
    assert any("does not seem to use it" in str(body.get("message")) for body in bodies)
    assert bench.server.logs["user_logs/std_log_process_0.txt"] == b"started\n"


def test_a_job_of_one_rank_has_no_preflight(bench: Bench) -> None:
    bench.run(bench.plan("true", communication_backend="nccl"))
    assert bench.exit()["exit_code"] == 0 and "preflight" not in bench.server.kinds()


def test_the_preflight_event_holds_results_of_the_probes(bench: Bench) -> None:
    bench.run(bench.plan("true", node_count=2))
    for node in (0, 1):
        body = bench.server.find("preflight", node)
        assert [result["to"] for result in body["ways"]] == ([1] if node == 0 else [0, 0])
        assert body["took_ms"] > 0 and bench.server.facts[node]["door"] > 0
    assert abs(bench.server.find("preflight", 1)["apart_s"]) < 5


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
