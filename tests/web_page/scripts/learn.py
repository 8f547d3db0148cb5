"""Learn to tell points by a logistic regression, each rank on its share of them.

Real distributed training with the standard library alone: gradients are averaged over TCP at
MASTER_ADDR:MASTER_PORT, metrics go to the job's own MLflow endpoint.

Shape suffixes: N points of a rank, D features.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import socket
import struct
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
FEATURES = 8


class Group:
    """Rank 0 adds up what the others send, and sends the mean back."""

    def __init__(self) -> None:
        self._peers: list[socket.socket] = []
        address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            server = socket.create_server(("", address[1]))
            self._peers = [server.accept()[0] for _ in range(WORLD_SIZE - 1)]
            return
        for _ in range(600):
            try:
                self._peers = [socket.create_connection(address, timeout=60)]
                return
            except OSError:
                time.sleep(0.1)
        raise ConnectionError(f"rank 0 does not answer at {address}")

    def mean(self, values: list[float]) -> list[float]:
        form = f"{len(values)}d"
        if RANK:
            self._peers[0].sendall(struct.pack(form, *values))
            return list(struct.unpack(form, _receive(self._peers[0], struct.calcsize(form))))
        rows = [values]
        rows += [
            list(struct.unpack(form, _receive(peer, struct.calcsize(form)))) for peer in self._peers
        ]
        mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        for peer in self._peers:
            peer.sendall(struct.pack(form, *mean))
        return mean


def _receive(peer: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = peer.recv(size - len(content))
        if not piece:
            raise ConnectionError("a rank has gone")
        content += piece
    return content


def log(verb: str, **body: Any) -> None:
    run = os.environ["MLFLOW_RUN_ID"]
    request = urllib.request.Request(
        f"{os.environ['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/runs/{verb}",
        json.dumps({"run_id": run, **body}).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('MLFLOW_TRACKING_TOKEN', '')}",
        },
    )
    urllib.request.urlopen(request, timeout=60).close()


def metric(key: str, value: float, step: int) -> dict[str, Any]:
    return {"key": key, "value": value, "timestamp": int(time.time() * 1000), "step": step}


def points(many: int) -> tuple[list[list[float]], list[int]]:
    """This rank's points: `(N, D)`, and their classes."""
    draw = random.Random(RANK)
    truth_D = [1.5, -2.0, 0.7, 0.0, 1.0, -0.4, 0.2, -1.1]
    points_ND = [[draw.gauss(0, 1) for _ in range(FEATURES)] for _ in range(many)]
    classes_N = [
        int(sum(t * x for t, x in zip(truth_D, point, strict=True)) + draw.gauss(0, 0.8) > 0)
        for point in points_ND
    ]
    return points_ND, classes_N


def step(weights_D: list[float], points_ND: Any, classes_N: list[int]) -> list[float]:
    """The gradient of the mean loss, then the loss, then the share that is right."""
    gradient_D, loss, right = [0.0] * FEATURES, 0.0, 0
    for point, truth in zip(points_ND, classes_N, strict=True):
        score = max(-30.0, min(30.0, sum(w * x for w, x in zip(weights_D, point, strict=True))))
        chance = 1 / (1 + math.exp(-score))
        loss -= math.log(chance if truth else 1 - chance)
        right += (chance > 0.5) == bool(truth)
        for index, x in enumerate(point):
            gradient_D[index] += (chance - truth) * x
    many = len(classes_N)
    return [each / many for each in gradient_D] + [loss / many, right / many]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two steps")
    parser.add_argument("--fail-at", type=int, default=-1)
    arguments = parser.parse_args()
    print(f"\033[1mrank {RANK} of {WORLD_SIZE}\033[0m: lr {arguments.lr}", flush=True)
    group = Group()
    points_ND, classes_N = points(200)
    weights_D = [0.0] * FEATURES
    if RANK == 0:
        log(
            "log-batch",
            params=[{"key": "optimizer", "value": "sgd"}, {"key": "points", "value": "400"}],
        )
    for number in range(arguments.steps):
        local = step(weights_D, points_ND, classes_N)
        if number == arguments.fail_at and RANK == WORLD_SIZE - 1:
            print("\033[31mloading shard 3 failed\033[0m", flush=True)
            raise ValueError("shard-0003.tar: expected 128 features, found 96")
        mean = group.mean(local)
        weights_D = [w - arguments.lr * g for w, g in zip(weights_D, mean[:FEATURES], strict=True)]
        batch = [metric(f"loss/rank_{RANK}", local[-2], number)]
        if RANK == 0:
            batch += [metric("loss", mean[-2], number), metric("accuracy", mean[-1], number)]
            print(f"step {number:3d}  loss \033[36m{mean[-2]:.4f}\033[0m  accuracy {mean[-1]:.3f}")
        else:
            print(f"step {number:3d}  loss on this rank {local[-2]:.4f}")
        sys.stdout.flush()
        log("log-batch", metrics=batch)
        time.sleep(arguments.pause)
    if RANK == 0:
        folder = Path("outputs")
        folder.mkdir(exist_ok=True)
        (folder / "model.json").write_text(json.dumps({"weights": weights_D}, indent=1))
        (folder / "predictions.csv").write_text(
            "point,truth\n" + "".join(f"{n},{c}\n" for n, c in enumerate(classes_N))
        )
    print("\033[32mlearned\033[0m", flush=True)


if __name__ == "__main__":
    main()
