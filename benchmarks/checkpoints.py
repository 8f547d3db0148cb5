"""Checkpoints in the background, beside torch.save and torch.distributed.checkpoint.async_save.

python benchmarks/checkpoints.py [--size-mb 1000] [--rounds 3] [--folder FOLDER] [--busy]
                                [--only WAY] [--memory-saves 50] [--device cuda]

Two ranks with the same state (DDP) save `rounds` times after a first one that is not counted. Each
way of saving has processes of its own, which hold nothing of the others. The figures are rank 0's
medians in milliseconds:

- one copy: of the state, in memory; raw write: of the same bytes by both ranks, half each, fsync;
- blocked: how long `save` holds up the loop; durable: until the files are on disk; load;
- stall: how much longer a loop takes for each of its saves, one every 20 steps. A step waits for
  0.1 s, as for a GPU; with --busy it computes, and writers take processors from it;
- ten steps: without a save; ten steps after: right after one, which an asynchronous save may slow
  down when it has returned; save and ten steps: both together.

With --device cuda the state is in a GPU's memory, the copy goes to pinned memory, and steps that
compute do so on the GPU, which ranks share where there are fewer GPUs than ranks.

torch.save is rank 0's alone, with fsync. Intercepted, as with `torchyard: {checkpoint: {intercept:
true}}`, it returns after its copy. `written_mb` is what each rank's file of torchyard's has of the
state. `memory_mb` is what rank 0 and its writer hold together (shared memory once) after five of
`--memory-saves` further saves and after all of them; 0 leaves it out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes

from torchyard.train.checkpoint import Checkpointer
from torchyard.train.checkpoint.staging import available_bytes
from torchyard.train.saved_files import interception

RANKS = 2
LAYERS = 32
STEP_S = 0.1
STEPS_PER_SAVE = 20
SAVES = 3
NEXT_STEPS = 10
FIRST_MEMORY_SAVE = 5
BLOCK_BYTES = 4 << 20
# A rank that waits longer for the other one ends, and the benchmark with it.
RANK_TIMEOUT_S = 300

State: TypeAlias = dict[str, torch.Tensor]
Figures: TypeAlias = dict[str, Any]


def measure(rank: int, way: str, options: argparse.Namespace, folder: str) -> None:
    """On one rank; rank 0 writes the figures to `figures.json`."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // RANKS))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group(
        "gloo", f"file://{folder}/rendezvous", rank=rank, world_size=RANKS,
        timeout=timedelta(seconds=RANK_TIMEOUT_S),
    )  # fmt: skip
    length = options.size_mb * 250_000 // LAYERS
    device = options.device
    if device == "cuda":
        device = f"cuda:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    state = {
        f"layer{number}": torch.full((length,), float(number), device=device)
        for number in range(LAYERS)
    }
    figures = WAYS[way](rank, state, options, Path(folder))
    if rank == 0:
        Path(folder, "figures.json").write_text(json.dumps(figures))
    dist.barrier()
    dist.destroy_process_group()


def _measure_memory_and_disk(
    rank: int, state: State, options: argparse.Namespace, folder: Path
) -> Figures:
    is_cuda = state["layer0"].is_cuda
    scratch = torch.empty(state["layer0"].shape, pin_memory=is_cuda)

    def copy(number: int) -> Figures:
        start = time.perf_counter()
        for tensor in state.values():
            scratch.copy_(tensor)  # returns when it is done, also from a GPU
        return {"one copy": time.perf_counter() - start}

    def write(number: int) -> Figures:
        start = time.perf_counter()
        with open(folder / f"raw-{rank}", "wb", buffering=0) as file:
            for tensor in list(state.values())[rank::RANKS]:
                view = memoryview(tensor.cpu().numpy()).cast("B")
                for offset in range(0, len(view), BLOCK_BYTES):
                    file.write(view[offset : offset + BLOCK_BYTES])
            os.fsync(file.fileno())
        dist.barrier()
        return {"raw write": time.perf_counter() - start}

    return {**_median(options.rounds, copy), **_median(options.rounds, write)}


def _measure_torch_save(
    rank: int, state: State, options: argparse.Namespace, folder: Path
) -> Figures:
    path = folder / "state.pt"

    def save() -> None:
        if rank == 0:
            with open(path, "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
        dist.barrier()

    def save_and_load(number: int) -> Figures:
        start = time.perf_counter()
        save()
        saved = time.perf_counter()
        for name, tensor in torch.load(path, weights_only=True).items():
            state[name].copy_(tensor)
        return {"blocked": saved - start, "durable": saved - start,
                "load": time.perf_counter() - saved}  # fmt: skip

    figures = _median(options.rounds, save_and_load)
    return {**figures, **_loops(options, lambda number: save(), lambda: None)}


def _measure_intercept(
    rank: int, state: State, options: argparse.Namespace, folder: Path
) -> Figures:
    outputs = folder / "outputs"
    outputs.mkdir(exist_ok=True)
    path = outputs / "state.pt"
    dist.barrier()
    script = types.SimpleNamespace(save=torch.save)
    taken = interception.install(script, {"AZUREML_OUTPUT_DIRECTORY": str(outputs)})
    assert taken is not None

    def save() -> None:
        if rank == 0:
            script.save(state, path)
        dist.barrier()

    def save_and_load(number: int) -> Figures:
        start = time.perf_counter()
        save()
        blocked = time.perf_counter()
        taken.wait()
        dist.barrier()
        durable = time.perf_counter()
        for name, tensor in torch.load(path, weights_only=True).items():
            state[name].copy_(tensor)
        return {"blocked": blocked - start, "durable": durable - start,
                "load": time.perf_counter() - durable}  # fmt: skip

    figures = _median(options.rounds, save_and_load)
    return {**figures, **_loops(options, lambda number: save(), taken.wait)}


def _measure_async_save(
    rank: int, state: State, options: argparse.Namespace, folder: Path
) -> Figures:
    saving: list[Any] = []

    def wait() -> None:
        while saving:
            saving.pop().result()

    def save(number: int) -> None:
        wait()
        saving.append(dcp.async_save(state, checkpoint_id=folder / f"dcp-{number}"))
        if rank == 0:
            shutil.rmtree(folder / f"dcp-{number - 2}", ignore_errors=True)

    def save_and_load(number: int) -> Figures:
        start = time.perf_counter()
        save(number)
        blocked = time.perf_counter()
        wait()
        durable = time.perf_counter()
        dist.barrier()
        loading = time.perf_counter()
        dcp.load(dict(state), checkpoint_id=folder / f"dcp-{number}")
        return {"blocked": blocked - start, "durable": durable - start,
                "load": time.perf_counter() - loading}  # fmt: skip

    figures = _median(options.rounds, save_and_load)
    return {**figures, **_loops(options, lambda number: save(100 + number), wait)}


def _measure_torchyard(
    rank: int, state: State, options: argparse.Namespace, folder: Path
) -> Figures:
    checkpointer = Checkpointer(folder / "torchyard", keep_last=1)

    def save_and_load(number: int) -> Figures:
        start = time.perf_counter()
        pending = checkpointer.save(number, state)
        blocked = time.perf_counter()
        pending.wait()
        durable = time.perf_counter()
        dist.barrier()
        loading = time.perf_counter()
        checkpointer.load(state)
        return {"blocked": blocked - start, "durable": durable - start,
                "load": time.perf_counter() - loading}  # fmt: skip

    figures: Figures = _median(options.rounds, save_and_load)
    figures |= _loops(
        options, lambda number: checkpointer.save(100 + number, state), checkpointer.wait
    )
    if options.memory_saves:
        figures["memory_mb"] = _memory(checkpointer, state, options.memory_saves)
    files = checkpointer.list()[-1].files
    figures["written_mb"] = {
        name: file.size_bytes // 1_000_000
        for name, file in sorted(files.items())
        if name != ".metadata"
    }
    checkpointer.close()
    return figures


WAYS: dict[str, Callable[[int, State, argparse.Namespace, Path], Figures]] = {
    "memory and disk": _measure_memory_and_disk,
    "torch.save": _measure_torch_save,
    "torch.save, intercepted": _measure_intercept,
    "async_save": _measure_async_save,
    "torchyard": _measure_torchyard,
}


def _median(rounds: int, run: Callable[[int], Figures]) -> Figures:
    """In milliseconds, without the first round."""
    results = []
    for number in range(rounds + 1):
        dist.barrier()
        results.append(run(number))
    dist.barrier()  # what comes next may write what a slower rank still reads
    return {
        name: round(1000 * statistics.median(result[name] for result in results[1:]), 1)
        for name in results[0]
    }


def _memory(checkpointer: Checkpointer, state: State, saves: int) -> dict[str, int]:
    """What this process and its writer hold, in MB; pages that both have count once."""
    figures = {}
    for number in range(1, saves + 1):
        checkpointer.save(1000 + number, state).wait()
        if number in (FIRST_MEMORY_SAVE, saves):
            figures[f"after {number} saves"] = sum(map(_pss_mb, [os.getpid(), *_children()]))
    return figures


def _pss_mb(pid: int) -> int:
    """
    Source: proc_pid_smaps_rollup(5), whose Pss divides a page among those who map it.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) // 1000
    raise ValueError(f"process {pid} has no Pss")


def _children() -> list[int]:
    threads = Path("/proc/self/task").iterdir()
    return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


def _loops(
    options: argparse.Namespace, save: Callable[[int], Any], wait: Callable[[], None]
) -> Figures:
    step = _step(options)
    stall = _stall(step, save, wait)
    return {"stall": stall, **_next_steps(step, save, wait, options.rounds)}


def _step(options: argparse.Namespace) -> Callable[[], None]:
    is_cuda = options.device == "cuda"
    matrix = torch.ones(4096, 4096, device="cuda") if is_cuda else torch.ones(256, 256)

    def step() -> None:
        if not options.busy:
            time.sleep(STEP_S)
            return
        for _ in range(30 if is_cuda else 100):
            matrix @ matrix
        if is_cuda:
            torch.cuda.synchronize()

    return step


def _next_steps(
    step: Callable[[], None], save: Callable[[int], Any], wait: Callable[[], None], rounds: int
) -> Figures:
    """A save and the steps after it, beside as many steps without one."""

    def steps_s() -> float:
        start = time.perf_counter()
        for _ in range(NEXT_STEPS):
            step()
        return time.perf_counter() - start

    def one(number: int) -> Figures:
        undisturbed_s = steps_s()
        dist.barrier()
        start = time.perf_counter()
        save(500 + number)
        after_s = steps_s()
        total_s = time.perf_counter() - start
        wait()
        return {"ten steps": undisturbed_s, "save and ten steps": total_s,
                "ten steps after": after_s}  # fmt: skip

    return _median(rounds, one)


def _stall(step: Callable[[], None], save: Callable[[int], Any], wait: Callable[[], None]) -> float:
    """How much longer a loop takes for each save, in ms; writing overlaps with the next steps."""

    def loop(is_saving: bool) -> float:
        dist.barrier()
        start = time.perf_counter()
        for number in range(1, SAVES * STEPS_PER_SAVE + 1):
            step()
            if is_saving and number % STEPS_PER_SAVE == 0:
                save(number)
        return time.perf_counter() - start

    save(0)
    wait()
    undisturbed, saving = loop(False), loop(True)
    wait()
    return round(1000 * (saving - undisturbed) / SAVES, 1)


def _run(way: str, options: argparse.Namespace, folder: str) -> Figures:
    """In two processes; a rank that is killed ends the other one.

    Raises:
        SystemExit: a rank ended before it had measured.
    """
    context = processes.spawn(measure, (way, options, folder), nprocs=RANKS, join=False)
    try:
        while not context.join(timeout=1):
            pass
    except processes.ProcessExitedException as error:
        print(f"error: {way}: rank {error.error_index} was ended: {error}", file=sys.stderr)
        print("hint: the kernel kills for memory; try a smaller --size-mb", file=sys.stderr)
        raise SystemExit(1) from error
    finally:
        for process in context.processes:
            process.kill()
            process.join()
    figures: Figures = json.loads(Path(folder, "figures.json").read_text())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to write, by default a temporary folder")
    parser.add_argument("--busy", action="store_true", help="let steps compute")
    parser.add_argument("--only", choices=WAYS, help="measure one way of saving")
    parser.add_argument("--memory-saves", type=int, default=50)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    # Of each rank: its state, and one copy of it.
    needed_bytes = RANKS * 2 * options.size_mb * 1_000_000 + (1 << 30)
    free_bytes = available_bytes(Path("/"))
    if free_bytes is not None and needed_bytes > free_bytes:
        print(f"error: --size-mb {options.size_mb} needs {needed_bytes >> 20} MiB of memory, and "
              f"{free_bytes >> 20} are free", file=sys.stderr)  # fmt: skip
        raise SystemExit(2)
    figures = {}
    for way in WAYS:
        if options.only in (None, way):
            with tempfile.TemporaryDirectory(prefix="checkpoints-", dir=options.folder) as folder:
                figures[way] = _run(way, options, folder)
    print(json.dumps({"size_mb": options.size_mb, "ms": figures}, indent=1))


if __name__ == "__main__":
    main()
