"""Random faults in their bounded form; the long ones are run by hand (see each script's words)."""

from __future__ import annotations

import os

import pytest

import postgres_server
from faults import (
    endpoint_kills,
    kills,
    launch_kills,
    pipeline_kills,
    runner_faults,
    server_kills,
    two_servers,
)

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(900)]

# Fixed; other seeds are for the long runs by hand.
SEED = 7


def test_nothing_of_a_job_lives_on() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    counts = kills.run(50, seed)
    print(kills.report(counts))
    assert sum(counts.faults.values()) == 50
    harm = (counts.left, counts.wrong, counts.decoys_killed, counts.cgroups_left)
    assert not any(harm), f"seed {seed}\n{kills.report(counts)}"


def test_a_killed_server_loses_nothing() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    counts = server_kills.run(25, seed)
    print(server_kills.report(counts))
    assert counts.kills == 25
    assert not counts.wrong, f"seed {seed}\n{server_kills.report(counts)}"


def test_killed_servers_and_processes_cost_a_pipeline_nothing() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    counts = pipeline_kills.run(15, seed)
    print(pipeline_kills.report(counts))
    assert counts.kinds.total() == 15 and counts.processes
    assert not counts.wrong, f"seed {seed}\n{pipeline_kills.report(counts)}"


def test_a_killed_process_of_optuna_costs_its_sweep_nothing() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    counts = server_kills.run(8, seed, kinds=("study", "study and server"))
    print(server_kills.report(counts))
    assert counts.kills == 8 and counts.sweeps and counts.missed < 8
    assert not counts.wrong, f"seed {seed}\n{server_kills.report(counts)}"


@pytest.mark.runner
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner")
def test_a_killed_runner_loses_nothing() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    site_of = runner_faults.made_with_runner
    counts = server_kills.run(9, seed, kinds=runner_faults.KINDS, site_of=site_of)
    print(server_kills.report(counts))
    assert counts.kills == 9
    assert not counts.wrong, f"seed {seed}\n{server_kills.report(counts)}"


def test_a_kill_during_a_launch_leaves_nothing_stuck_and_is_named() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    counts = launch_kills.run(18, seed)
    print(launch_kills.report(counts))
    assert sum(counts.kinds.values()) == 18
    harm = (counts.stuck, counts.wrong)
    assert not any(harm), f"seed {seed}\n{launch_kills.report(counts)}"


def test_two_servers_of_which_either_is_killed_lose_nothing() -> None:
    postgres_server.need()
    seed = SEED
    print(f"\nseed {seed}")
    counts = two_servers.run(15, seed)
    print(two_servers.report(counts))
    assert counts.jobs == 15 and counts.kills + counts.stalls > 0
    assert not counts.wrong, f"seed {seed}\n{two_servers.report(counts)}"


def test_requests_are_answered_while_what_serves_them_is_killed() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    counts = endpoint_kills.run(24, seed)
    print(endpoint_kills.report(counts))
    assert counts.kills + counts.missed == 24 and counts.statuses["200"] > 0
    assert not counts.wrong, f"seed {seed}\n{endpoint_kills.report(counts)}"


def test_an_endpoint_of_two_instances_is_whole_again_and_leaves_nothing() -> None:
    seed = SEED
    print(f"\nseed {seed}")
    counts = endpoint_kills.run(6, seed, endpoint_kills.OF_INSTANCES, instances=2)
    print(endpoint_kills.report(counts))
    assert counts.kills == 6 and counts.statuses["200"] > 0
    assert not counts.wrong, f"seed {seed}\n{endpoint_kills.report(counts)}"


def test_no_request_fails_while_a_deployment_is_changed() -> None:
    counts = endpoint_kills.update(1000)
    print(endpoint_kills.report(counts))
    assert counts.statuses["200"] >= 1000
    assert not counts.wrong, endpoint_kills.report(counts)
