"""What preflight finds in the facts of nodes, and how nodes knock at each other's doors."""

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
from torchyard.worker.preflight import checks, links, node_facts, script_check
from torchyard.worker.preflight.checks import ERROR, WARNING, Asked, Finding
from torchyard.worker.preflight.links import Round
from torchyard.worker.preflight.node_facts import Facts, Places, gather
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
    return [replace(one, **changes) for one in two()]


def look(facts: list[Facts], ranks: int = 1, single_host: bool = False) -> list[Finding]:
    return checks.look(facts, Asked(ranks, single_host))


def test_healthy_nodes_have_no_findings() -> None:
    assert look(two()) == []
    assert look([HEALTHY]) == []
    gpus = [replace(one, devices=["0", "1"], backend="nccl") for one in two()]
    assert look(gpus, ranks=2) == []


WRONG: list[tuple[str, list[Facts], str, str, tuple[int, ...]]] = [
    ("NCCL, no GPU anywhere", both(backend="nccl"), "nccl_without_gpu", ERROR, (0, 1)),
    (
        "NCCL, a node without GPU",
        [replace(one, backend="nccl", devices=["0"] * (one.node == 0)) for one in two()],
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
        "the same, and nobody said NCCL",
        both(devices=["GPU-1"], machine="boot-a"),
        "ranks_share_gpu",
        WARNING,
        (0, 1),
    ),
    (
        "NCCL's interface is missing",
        [
            replace(one, backend="nccl", devices=["0"], nccl_names="=eth0", interfaces={name: []})
            for one, name in zip(two(), ("eth0", "ens5"), strict=True)
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
    ("and where nobody said", both(nccl_names="ib"), "interface_missing", WARNING, (0, 1)),
    ("gloo's interface is missing", two(gloo_names="eth9"), "interface_missing", ERROR, (1,)),
    (
        "gloo's under NCCL",
        both(backend="nccl", devices=["0"], gloo_names="eth9"),
        "interface_missing",
        WARNING,
        (0, 1),
    ),
    ("only loopback", two(address="127.0.0.1"), "no_own_address", ERROR, (1,)),
    ("one address twice", two(address="10.0.0.1"), "address_shared", ERROR, (0, 1)),
    (
        "two versions of torch",
        [replace(one, torch=f"2.1{one.node}.0") for one in two()],
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


@pytest.mark.parametrize(("what", "facts", "code", "severity", "nodes"), WRONG)
def test_what_is_wrong_is_told_by_name(
    what: str, facts: list[Facts], code: str, severity: str, nodes: tuple[int, ...]
) -> None:
    (found,) = look(facts)
    assert (found.code, found.severity, found.nodes) == (code, severity, nodes), found
    assert all(str(node) in found.message for node in nodes)
    assert found.hint and not found.message.endswith(".")
    assert code in {row[0] for row in checks.TABLE}


def test_more_ranks_than_gpus() -> None:
    facts = both(backend="nccl", devices=["0", "1"])
    (found,) = look(facts, ranks=4)
    assert (found.code, found.severity) == ("ranks_share_gpu", ERROR)
    assert "4 ranks and 2 GPUs" in found.message and "to 2" in found.hint
    assert look(both(backend="gloo", devices=["0"]), ranks=4) == []
    assert [one.severity for one in look(both(devices=["0"]), ranks=4)] == [WARNING]


def test_memory_counts_all_ranks_of_a_machine() -> None:
    facts = both(memory_free_bytes=2 * GIB, machine="boot-a")
    assert look(facts, ranks=4) == []
    assert [one.code for one in look(facts, ranks=4, single_host=True)] == ["memory_short"]


def test_errors_come_first() -> None:
    found = look(two(mtu=9000, disk_free_bytes=0, shm_free_bytes=0))
    assert [one.severity for one in found] == [ERROR, WARNING, WARNING]


@pytest.mark.parametrize(
    ("written", "finds"),
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
def test_interface_names_as_nccl_reads_them(written: str, finds: bool) -> None:
    assert checks.nccl_finds(written, ["lo", "eth0"]) is finds


def test_interface_names_as_gloo_reads_them() -> None:
    there = ["lo", "eth0"]
    assert checks.gloo_misses("", there) == []
    assert checks.gloo_misses("eth0,lo", there) == []
    # Measured with torch 2.13: no prefixes, and every name must be there.
    assert checks.gloo_misses("eth", there) == ["eth"]
    assert checks.gloo_misses("eth0,ib0", there) == ["ib0"]


@pytest.mark.parametrize(
    ("apart_s", "sure_to_s", "severity"),
    [(0.5, 0.1, ""), (-3.0, 0.1, WARNING), (3.0, 2.0, ""), (-400.0, 0.1, ERROR)],
)
def test_clocks(apart_s: float, sure_to_s: float, severity: str) -> None:
    found = checks.clock_finding(two()[1], apart_s, sure_to_s)
    assert (found.severity if found else "") == severity
    if found:
        assert ("behind" if apart_s < 0 else "ahead") in found.message


def test_facts_survive_the_way_over_json() -> None:
    told = {**HEALTHY.to_dict(), "of_a_later_version": 1}
    assert node_facts.read(told) == HEALTHY


def test_what_a_machine_says_of_itself(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemTotal: 1 kB\nMemAvailable:    2048 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    _write(tmp_path / "sys/fs/cgroup/a/b/memory.max", "max\n")
    _write(tmp_path / "sys/fs/cgroup/a/memory.max", "1000000\n")
    _write(tmp_path / "sys/fs/cgroup/a/memory.current", "400000\n")
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
    places = Places(tmp_path, tmp_path)
    found = gather(plan, 1, {"GLOO_SOCKET_IFNAME": "x"}, tmp_path, "127.0.0.1", (7, "w"), places)
    assert (found.memory_free_bytes, found.devices) == (600_000, ["0", "1"])
    assert (found.torch, found.torch_gpu) == ("2.13.0+cu130", "cuda")
    assert (found.nccl_names, found.gloo_names, found.backend) == ("^lo", "x", "nccl")
    assert (found.door, found.nonce, found.node) == (7, "w", 1)
    assert "127.0.0.1" in found.interfaces["lo"] and found.mtu > 1000
    assert found.disk_free_bytes > 0 and found.shm_bytes >= found.shm_free_bytes > 0
    hidden = gather(plan, 1, {"CUDA_VISIBLE_DEVICES": "1,-1,0"}, tmp_path, "", places=places)
    assert hidden.devices == ["1"]
    assert gather(plan, 1, {}, tmp_path / "absent", "", places=Places(tmp_path / "no")).torch


def test_devices_are_those_that_the_engine_gave() -> None:
    card = DevicePlan("nvidia", 3, "GPU-3")
    plan = replace(PLAN, devices=[[card], []])
    places = Places(Path("/nowhere"))
    assert gather(plan, 0, {}, Path("/"), "", places=places).devices == ["3"]
    assert gather(plan, 1, {}, Path("/"), "", places=places).devices == []
    chosen = replace(plan, environment_variables={"CUDA_VISIBLE_DEVICES": ""})
    assert gather(chosen, 0, {}, Path("/"), "", places=places).devices == []


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
def test_what_backend_a_job_asks_for(changes: dict[str, Any], backend: str) -> None:
    assert node_facts.asked_backend(replace(PLAN, **changes)) == backend


@pytest.mark.parametrize(
    ("command", "script", "hint"),
    [
        ("python train.py", "dist.init_process_group('nccl')\n", "`train.py` line 1"),
        ("python train.py", 'x = 1\ninit_process_group(backend="NCCL")\n', "`train.py` line 2"),
        ("python train.py", "b = 'nccl' if cuda else 'gloo'\n", ""),
        ("python train.py", "# init_process_group('nccl')\n", ""),
        ("python train.py --dist-backend nccl", "", "the command"),
        ("python train.py --backend='nccl'", "", "the command"),
        ("DIST_BACKEND=nccl python train.py", "", "the command"),
        ("python other.py 'unclosed", "", ""),
    ],
)
def test_a_glance_at_the_script(tmp_path: Path, command: str, script: str, hint: str) -> None:
    (tmp_path / "train.py").write_text(script)
    found = script_check.at_nccl(command, tmp_path)
    assert (found is not None) == bool(hint)
    if found is not None:
        assert found.message.startswith(hint) and found.severity == WARNING


class Street:
    """Doors of several nodes on this machine, and a round for each."""

    def __init__(self, count: int) -> None:
        self.held = hold_port(6500, 6900)
        self.doors = [[links.open_door("127.0.0.1")] for _ in range(count)]
        self.facts = [
            Facts(
                node=node,
                address="127.0.0.1",
                door=self.doors[node][0].getsockname()[1],
                nonce=links.new_word(),
            )
            for node in range(count)
        ]
        self.doors[0].append(self.held.listen())

    def round(self, node: int, **options: Any) -> Round:
        return Round(self.facts, node, self.doors[node], self.held.port, **options)

    def close(self) -> None:
        for doors in self.doors:
            doors[0].close()
        self.held.close()


@pytest.fixture
def street() -> Iterator[Callable[[int], Street]]:
    made: list[Street] = []

    def make(count: int) -> Street:
        made.append(Street(count))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_all_nodes_pass_together(street: Callable[[int], Street]) -> None:
    here = street(4)
    passed: list[int] = []

    def go(node: int) -> list[links.Way]:
        around = here.round(node)
        ways = around.knock()
        if node == 3:
            time.sleep(0.2)
            assert passed == [], "somebody went before the last was through"
        assert around.together() == []
        passed.append(node)
        around.close()
        return ways

    with ThreadPoolExecutor(4) as pool:
        ways = list(pool.map(go, range(4)))
    assert [len(one) for one in ways] == [3, 4, 4, 4]
    assert not any(way.error for one in ways for way in one)
    assert {way.port for one in ways for way in one if way.meets} == {here.held.port}
    # The port where ranks meet is held still, and free as soon as it is let go.
    here.held.deafen()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", here.held.port), 1.0)
    with pytest.raises(Failure):
        hold_port(here.held.port, here.held.port)
    here.held.close()
    hold_port(here.held.port, here.held.port).close()


def test_a_strangers_port_is_not_taken_for_ours(street: Callable[[int], Street]) -> None:
    here = street(2)
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def serve() -> None:
            sock, _ = stranger.accept()
            with sock:
                sock.recv(100)
                sock.sendall(b"220 mail.example.org ESMTP\n")

        thread = threading.Thread(target=serve)
        thread.start()
        here.facts[0] = replace(here.facts[0], door=stranger.getsockname()[1])
        around = here.round(1, answer_s=1.5)
        ways = around.knock()
        around.close()
        thread.join()
    strange, meets = sorted(ways, key=lambda way: way.meets)
    assert "something else answers there" in strange.error
    # Node 0 does nothing here: who is connected and hears nothing blames no port.
    assert meets.left and "nobody spoke" in meets.error


def test_a_stranger_gets_no_answer(street: Callable[[int], Street]) -> None:
    here = street(2)
    over = threading.Event()
    around = here.round(0, stopped=over.is_set)

    def wait() -> None:
        with pytest.raises(OSError, match="stopped"):
            around.together()

    thread = threading.Thread(target=wait)
    thread.start()
    with socket.create_connection(("127.0.0.1", here.facts[0].door), 5.0) as stranger:
        stranger.sendall(b"torchyard-preflight-1 guessed word 1\n")
        with pytest.raises(ConnectionResetError):
            stranger.recv(100)
    over.set()
    thread.join()
    around.close()


def test_who_has_left_is_not_called_a_blocked_port(street: Callable[[int], Street]) -> None:
    here = street(2)

    def hang_up(door: socket.socket) -> None:
        door.setblocking(True)
        door.accept()[0].close()

    threads = [threading.Thread(target=hang_up, args=(door,)) for door in here.doors[0]]
    for thread in threads:
        thread.start()
    around = here.round(1)
    ways = around.knock()
    around.close()
    for thread in threads:
        thread.join()
    assert len(ways) == 2 and all(way.left for way in ways)


def test_a_closed_port_is_told(street: Callable[[int], Street]) -> None:
    here = street(2)
    here.doors[0][0].close()
    around = here.round(1, answer_s=0.2)
    shut = links.blocked(around.knock())
    around.close()
    assert [(way.port, way.error) for way in shut[0] if not way.left] == [
        (here.facts[0].door, "Connection refused")
    ]


def test_clocks_are_read_off_each_other(street: Callable[[int], Street]) -> None:
    here = street(2)

    def go(node: int) -> links.Apart | None:
        around = here.round(node, clock=lambda: time.time() - 700.0 * node)
        around.knock()
        around.together()
        around.close()
        return around.apart()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(go, range(2))
    assert first is None and second is not None
    assert abs(second.seconds + 700.0) <= second.sure_to_s + 0.01


class Told:
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


def together(
    tmp_path: Path,
    plan: LaunchPlan,
    change: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda node, facts: facts,
    ahead_s: float = 0.0,
) -> list[tuple[Told, Failure | None]]:
    """The preflight of all nodes of a plan, in this process, over real sockets."""
    held: HeldPort = hold_port(6500, 6900)
    told = [Told() for _ in range(plan.node_count)]
    parts = []
    for node in range(plan.node_count):
        clock = (lambda: time.time() + ahead_s) if node else time.time
        parts.append(Preflight(plan, node, {}, tmp_path, told[node], clock))
    facts = [
        change(node, part.introduce("127.0.0.1", held if node == 0 else None))
        for node, part in enumerate(parts)
    ]

    def go(node: int) -> Failure | None:
        try:
            parts[node].check(facts, held.port, lambda: False)
        except Failure as failure:
            return failure
        finally:
            parts[node].close()
        return None

    try:
        with ThreadPoolExecutor(plan.node_count) as pool:
            return list(zip(told, pool.map(go, range(plan.node_count)), strict=True))
    finally:
        held.close()


# This machine may lack something itself.
def _whole(node: int, facts: dict[str, Any]) -> dict[str, Any]:
    kept = ("node", "address", "door", "nonce", "backend", "devices", "torch", "torch_gpu")
    return {**HEALTHY.to_dict(), **{key: facts[key] for key in kept}, "machine": f"boot-{node}"}


@pytest.mark.slow
def test_a_clock_far_off_fails_the_job_by_name(tmp_path: Path) -> None:
    first, second = together(tmp_path, PLAN, _whole, ahead_s=3600.0)
    assert second[1] is not None and second[1].code == "clocks_apart"
    # Between question and answer a busy machine may do much else.
    said = r"node 1 \(127.0.0.1\) has a clock (3599|3600)\.\d s ahead of node 0's"
    assert re.fullmatch(said, second[1].message)
    assert second[0].codes == ["clocks_apart"]
    # Node 0 is told by the server, and here by the one that hung up.
    assert first[1] is not None and first[1].code == "preflight_timeout"


def test_a_clock_a_little_off_is_a_notice(tmp_path: Path) -> None:
    first, second = together(tmp_path, PLAN, _whole, ahead_s=30.0)
    assert (first[1], second[1], first[0].notices) == (None, None, [])
    (notice,) = second[0].notices
    assert notice.startswith("preflight: node 1") and re.search(r"(29|30)\.\d s ahead", notice)


def test_an_error_of_facts_is_the_same_on_all_nodes(tmp_path: Path) -> None:
    plan = replace(PLAN, communication_backend="nccl")
    found = together(tmp_path, plan, _whole)
    for told, failure in found:
        assert failure is not None and failure.code == "nccl_without_gpu"
        assert told.codes == ["nccl_without_gpu"] and told.notices == []
        assert failure.details["preflight"][0]["nodes"] == (0, 1)


def test_asked_to_warn_only_the_ranks_start(tmp_path: Path) -> None:
    plan = replace(PLAN, communication_backend="nccl", preflight="warn")
    first, second = together(tmp_path, plan, _whole)
    assert (first[1], second[1]) == (None, None)
    assert len(first[0].notices) == 1 and second[0].notices == []


# Real workers from here on.


def test_a_worker_refuses_nccl_without_a_gpu(bench: Bench) -> None:
    if any(name.startswith("nvidia") or name == "kfd" for name in os.listdir("/dev")):
        pytest.skip("this machine has a GPU")
    bench.run(bench.plan("echo started", node_count=2, communication_backend="nccl"))
    errors = [bench.exit(node)["error"] for node in (0, 1)]
    assert {error["code"] for error in errors} == {"nccl_without_gpu"}
    assert errors[0]["message"].startswith("nodes 0, 1 have no GPU, and the job asks for NCCL")
    assert "ranks_started" not in bench.server.kinds(0) + bench.server.kinds(1)


@pytest.fixture
def with_gpus(bench: Bench) -> Bench:
    """Two pretended ones."""
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
    assert error["message"].startswith("nodes 0, 1 have 2 ranks and 1 GPU")
    assert "ranks_started" not in bench.server.kinds()


@pytest.mark.parametrize(("backend", "fails"), [("nccl", True), ("gloo", False)])
def test_a_worker_knows_its_interfaces(with_gpus: Bench, backend: str, fails: bool) -> None:
    bench = with_gpus
    plan = bench.plan(
        "echo started",
        node_count=2,
        communication_backend=backend,
        gpus_per_node=1,
        environment_variables={"NCCL_SOCKET_IFNAME": "=ib7"},
    )
    bench.run(plan)
    told = [event["body"] for event in bench.server.events[0]]
    if fails:
        assert bench.exit()["error"]["code"] == "interface_missing"
        assert "`NCCL_SOCKET_IFNAME==ib7`" in bench.exit()["error"]["message"]
        return
    assert bench.exit()["exit_code"] == 0
    assert any("does not use it" in str(body.get("message")) for body in told)
    assert bench.server.logs["user_logs/std_log_process_0.txt"] == b"started\n"


def test_a_job_of_one_rank_is_not_looked_at(bench: Bench) -> None:
    bench.run(bench.plan("true", communication_backend="nccl"))
    assert bench.exit()["exit_code"] == 0 and "preflight" not in bench.server.kinds()


def test_what_nodes_found_out_is_told(bench: Bench) -> None:
    bench.run(bench.plan("true", node_count=2))
    for node in (0, 1):
        told = bench.server.find("preflight", node)
        assert [way["to"] for way in told["ways"]] == ([1] if node == 0 else [0, 0])
        assert told["took_ms"] > 0 and bench.server.facts[node]["door"] > 0
    assert abs(bench.server.find("preflight", 1)["apart_s"]) < 5


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
