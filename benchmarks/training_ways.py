"""A transformer trained and asked in several ways, in turn, on a CPU or a GPU.

    python benchmarks/training_ways.py --model bert gpt2 [--size small] [--device cpu] [--steps 20]
        [--ways eager fused compile ortmodule deepspeed] [--precision float32] [--json FILE]

Needs torch; `ortmodule` uses torchyard's torch_ort from this checkout, and for its answers onnx,
onnxscript and onnxruntime; `deepspeed` is ZeRO-1 of DeepSpeed on one rank; `compile` needs a C++
compiler. A way that can't run here says why. All begin with the same weights and take the same
batches, step by step in turn, so that other load strikes all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from shaped_models import SHAPES, Shape, Transformer, batch, loss

COMPAT = Path(__file__).resolve().parents[1] / "compat"
WAYS = ("eager", "fused", "compile", "ortmodule", "deepspeed")
RATE = 1e-4
# Before them, a step's time is that of starting and compiling.
FIRST = 4


@dataclass
class Way:
    """One way of training: `step` takes tokens and returns the loss, `answer` the logits."""

    name: str
    step: Callable[[torch.Tensor], torch.Tensor]
    answer: Callable[[torch.Tensor], torch.Tensor]
    memory_mb: float = 0.0
    seconds: list[float] = field(default_factory=list)
    answer_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def build(name: str, shape: Shape, device: str, precision: torch.dtype) -> Way:
    torch.manual_seed(0)
    module = Transformer(shape).to(device)
    autocast = contextlib.nullcontext
    if precision != torch.float32:
        autocast = lambda: torch.autocast(device, precision)  # type: ignore[assignment]  # noqa: E731
    if name == "deepspeed":
        return _deepspeed(module, shape, precision)
    model: Any = module
    if name == "compile":
        model = torch.compile(module)
    elif name == "ortmodule":
        sys.path.insert(0, str(COMPAT / "torch-ort" / "src"))
        os.environ.setdefault("TORCH_ORT_TRIAL_AFTER_S", "0")
        from torch_ort import ORTModule

        model = ORTModule(module)
    optimizer = torch.optim.AdamW(module.parameters(), RATE, fused=name == "fused")

    def step(tokens: torch.Tensor) -> torch.Tensor:
        model.train()
        with autocast():
            value = loss(model(tokens), tokens, shape)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.detach()

    def answer(tokens: torch.Tensor) -> torch.Tensor:
        model.eval()
        with torch.no_grad(), autocast():
            logits: torch.Tensor = model(tokens)
        return logits

    return Way(name, step, answer)


def _deepspeed(module: torch.nn.Module, shape: Shape, precision: torch.dtype) -> Way:
    os.environ.setdefault("DS_ACCELERATOR", next(module.parameters()).device.type)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1")
    import deepspeed

    device = next(module.parameters()).device.type
    if device == "cpu":
        # Its transport over shared memory would be compiled first.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if not torch.distributed.is_initialized():
        file = tempfile.mktemp()
        deepspeed.init_distributed(
            "gloo" if device == "cpu" else "nccl", init_method=f"file://{file}",
            rank=0, world_size=1, auto_mpi_discovery=False,
        )  # fmt: skip
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": shape.batch,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if precision == torch.bfloat16:
        config["bf16"] = {"enabled": True}
    engine, *_ = deepspeed.initialize(
        model=module, optimizer=torch.optim.AdamW(module.parameters(), RATE), config=config
    )

    def step(tokens: torch.Tensor) -> torch.Tensor:
        engine.train()
        value = loss(engine(tokens), tokens, shape)
        engine.backward(value)
        engine.step()
        return value.detach()

    def answer(tokens: torch.Tensor) -> torch.Tensor:
        engine.eval()
        with torch.no_grad():
            logits: torch.Tensor = engine(tokens)
        return logits

    return Way("deepspeed", step, answer)


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Every way's tokens a second, memory and losses."""
    shape = SHAPES[model, options.size]
    precision = getattr(torch, options.precision)
    ways: list[Way] = []
    failed: dict[str, str] = {}
    for name in options.ways:
        began = time.perf_counter()
        before = torch.cuda.memory_allocated() if options.device == "cuda" else 0
        try:
            way = build(name, shape, options.device, precision)
            for step in range(FIRST):
                way.losses.append(float(way.step(batch(shape, step, options.device))))
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0:1]}"
            continue
        print(f"{name} is ready after {time.perf_counter() - began:.1f} s", flush=True)
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            way.losses.append(float(way.step(batch(shape, FIRST, options.device))))
            way.memory_mb = (torch.cuda.max_memory_allocated() - before) / 2**20
        ways.append(way)
    first = len(ways[0].losses)
    for number in range(first, first + options.steps):
        for way in ways:
            seconds, value = _timed(way.step, batch(shape, number, options.device))
            way.seconds.append(seconds)
            way.losses.append(float(value))
    # The first way's answers: each has trained, and a little differently.
    answers = {way.name: way.answer(batch(shape, 0, options.device)) for way in ways}
    for number in range(FIRST + options.steps):
        for way in ways:
            seconds, _ = _timed(way.answer, batch(shape, number, options.device))
            if number >= FIRST:
                way.answer_seconds.append(seconds)
    return _figures(model, shape, ways, answers, failed)


def _timed(call: Callable[[torch.Tensor], torch.Tensor], tokens: torch.Tensor) -> Any:
    if tokens.is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    value = call(tokens)
    if tokens.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started, value


def _figures(
    model: str, shape: Shape, ways: list[Way], answers: dict[str, Any], failed: dict[str, str]
) -> dict[str, Any]:
    tokens = shape.batch * shape.tokens
    base = ways[0]
    rows: dict[str, Any] = {}
    for way in ways:
        train, ask = statistics.median(way.seconds), statistics.median(way.answer_seconds)
        pairs = zip(way.losses, base.losses, strict=False)
        scale = answers[base.name].float().abs().max()
        apart = (answers[way.name].float() - answers[base.name].float()).abs().max() / scale
        rows[way.name] = {
            "training_tokens_s": tokens / train,
            "training_ratio": statistics.median(base.seconds) / train,
            "inference_tokens_s": tokens / ask,
            "inference_ratio": statistics.median(base.answer_seconds) / ask,
            "memory_mb": way.memory_mb,
            "losses": [way.losses[0], way.losses[-1]],
            "largest_loss_difference": max(abs(a - b) / abs(b) for a, b in pairs),
            "answers_apart": float(apart),
        }
    return {"model": model, "ways": rows, "failed": failed}


def show(result: dict[str, Any], options: argparse.Namespace) -> None:
    print(f"\n{result['model']}, {options.size}, {options.device}, {options.precision}")
    print(f"  {'':10}{'training':>14}{'x eager':>9}{'inference':>14}{'x eager':>9}"
          f"{'MB':>9}{'losses apart':>14}")  # fmt: skip
    for name, row in result["ways"].items():
        print(
            f"  {name:10}{row['training_tokens_s']:>8.0f} tok/s{row['training_ratio']:>9.2f}"
            f"{row['inference_tokens_s']:>8.0f} tok/s{row['inference_ratio']:>9.2f}"
            f"{row['memory_mb']:>9.0f}{row['largest_loss_difference']:>14.1e}"
        )
    for name, reason in result["failed"].items():
        print(f"  {name}: does not run here: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["bert", "gpt2"], choices=("bert", "gpt2"))
    parser.add_argument("--size", default="small", choices=("tiny", "small", "large"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.ways[0] != "eager":
        options.ways.insert(0, "eager")
    results = []
    for model in options.model:
        results.append(measure(model, options))
        show(results[-1], options)
        if options.json:
            options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
