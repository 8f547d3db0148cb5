"""Workloads of torch alone: what training relies on, by numbers."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import checks


def checkpoint_resume() -> dict[str, Any]:
    """Training that was saved and resumed ends bit-equal to training that was not."""
    torch = checks.need("torch")
    device = checks.device()
    inputs, labels = (tensor.to(device) for tensor in checks.patterns(512))

    def steps(model: Any, optimizer: Any, first: int, last: int) -> float:
        loss = torch.zeros(())
        for step in range(first, last):
            batch = slice(32 * (step % 16), 32 * (step % 16) + 32)
            loss = torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    reference = checks.mlp().to(device)
    whole_optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    last_loss = steps(reference, whole_optimizer, 0, 40)
    half = checks.mlp().to(device)
    half_optimizer = torch.optim.AdamW(half.parameters(), lr=1e-2)
    steps(half, half_optimizer, 0, 20)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.pt"
        torch.save({"model": half.state_dict(), "optimizer": half_optimizer.state_dict()}, file)
        state = torch.load(file)
    resumed = checks.mlp().to(device)
    resumed_optimizer = torch.optim.AdamW(resumed.parameters(), lr=1e-2)
    resumed.load_state_dict(state["model"])
    resumed_optimizer.load_state_dict(state["optimizer"])
    steps(resumed, resumed_optimizer, 20, 40)
    count = checks.equal_states(reference.state_dict(), resumed.state_dict())
    count += checks.equal_states(
        whole_optimizer.state_dict()["state"], resumed_optimizer.state_dict()["state"]
    )
    return {"equal_tensors": count, "loss": last_loss}


def compile_parity() -> dict[str, Any]:
    """torch.compile gives the losses and the gradients of plain torch."""
    torch = checks.need("torch")
    if not hasattr(torch, "compile"):
        checks.skip(f"torch {torch.__version__} has no torch.compile")
    # Inductor builds C++ for a processor.
    has_compiler = shutil.which("g++") or shutil.which("clang++") or checks.device() == "cuda"
    backend = "inductor" if has_compiler else "aot_eager"
    inputs, labels = (tensor.to(checks.device()) for tensor in checks.patterns(256))
    plain = checks.mlp().to(checks.device())
    other = copy.deepcopy(plain)
    compiled = torch.compile(other, backend=backend)
    losses = []
    for model, module in ((plain, plain), (compiled, other)):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        losses.append((float(loss.detach()), [each.grad for each in module.parameters()]))
    difference = checks.close("the loss", losses[1][0], losses[0][0], 1e-5)
    pairs = zip(losses[0][1], losses[1][1])
    gradients = max(float((left - two).abs().max()) for left, two in pairs)
    checks.close("the gradients", gradients, 0.0, 1e-4)
    return {"backend": backend, "loss_difference": difference, "gradient_difference": gradients}


def bf16_autocast() -> dict[str, Any]:
    """Training in bfloat16 by autocast reaches the loss of float32."""
    torch = checks.need("torch")
    device = checks.device()
    inputs, labels = (tensor.to(device) for tensor in checks.patterns(512))
    ends = []
    for enabled in (False, True):
        model = checks.mlp().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        for _ in range(60):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
                output = model(inputs)
            if enabled:
                checks.expect(output.dtype is torch.bfloat16, f"autocast gave {output.dtype}")
            loss = torch.nn.functional.cross_entropy(output.float(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ends.append(float(loss.detach()))
    checks.close("the loss in bfloat16", ends[1], ends[0], 0.05)
    return {"loss_float32": ends[0], "loss_bfloat16": ends[1]}


def gradient_accumulation() -> dict[str, Any]:
    """Gradients of four small batches add up to those of the large one."""
    torch = checks.need("torch")
    inputs, labels = (tensor.to(checks.device()) for tensor in checks.patterns(128))
    full, parts = checks.mlp().to(checks.device()), checks.mlp().to(checks.device())
    torch.nn.functional.cross_entropy(full(inputs), labels).backward()
    for part in range(4):
        batch = slice(32 * part, 32 * part + 32)
        loss = torch.nn.functional.cross_entropy(parts(inputs[batch]), labels[batch])
        (loss / 4).backward()
    pairs = zip(full.parameters(), parts.parameters())
    difference = max(float((left.grad - two.grad).abs().max()) for left, two in pairs)
    return {"gradient_difference": checks.close("the gradients", difference, 0.0, 1e-6)}


def optimizer_formula() -> dict[str, Any]:
    """A step of AdamW is what the formula says: plain, over all parameters at once, and on a GPU
    as one kernel.
    """
    torch = checks.need("torch")
    start = torch.linspace(-1, 1, 50, dtype=torch.float64).to(checks.device())
    gradient = torch.sin(torch.arange(50, dtype=torch.float64)).to(checks.device())
    rate, decay, epsilon = 0.01, 0.1, 1e-8
    expected, mean, square = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for step in range(1, 4):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        expected = expected * (1 - rate * decay)
        corrected = (square / (1 - 0.999**step)).sqrt() + epsilon
        expected = expected - rate * (mean / (1 - 0.9**step)) / corrected
    differences = {}
    ways = {"plain": {"foreach": False}, "foreach": {"foreach": True}}
    if checks.device() == "cuda":
        ways["fused"] = {"fused": True}
    for name, way in ways.items():
        parameter = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([parameter], lr=rate, weight_decay=decay, **way)
        for _ in range(3):
            parameter.grad = gradient.clone()
            optimizer.step()
        difference = float((parameter.detach() - expected).abs().max())
        differences[name] = checks.close(f"AdamW ({name})", difference, 0.0, 1e-12)
    return differences


def dataloader_workers() -> dict[str, Any]:
    """Worker processes of a DataLoader bring every sample once, in order."""
    torch = checks.need("torch")
    dataset = torch.utils.data.TensorDataset(torch.arange(1000), torch.arange(1000) ** 2)
    loader = torch.utils.data.DataLoader(dataset, batch_size=50, num_workers=2)
    samples, squares = (torch.cat(parts) for parts in zip(*loader))
    checks.expect(torch.equal(samples, torch.arange(1000)), "samples are missing, or out of order")
    checks.expect(torch.equal(squares, samples**2), "samples and labels were mixed")
    return {"samples": len(samples), "workers": 2}


def profiler_trace() -> dict[str, Any]:
    """The profiler names the operators of a step, and its trace can be read."""
    import json

    torch = checks.need("torch")
    device = checks.device()
    model = checks.mlp().to(device)
    inputs, labels = (tensor.to(device) for tensor in checks.patterns(64))
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    names = {event.key for event in profile.key_averages()}
    checks.expect("aten::addmm" in names, f"no matrix product among {len(names)} operators")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events = len(json.loads(file.read_text(encoding="utf-8"))["traceEvents"])
    checks.expect(events > 10, f"the trace has {events} events")
    return {"operators": len(names), "trace_events": events}


def tensorboard_round_trip() -> dict[str, Any]:
    """Scalars written for TensorBoard are read back by it."""
    checks.need("tensorboard")
    writers = checks.need("torch.utils.tensorboard", "torch")
    with tempfile.TemporaryDirectory() as folder:
        with writers.SummaryWriter(folder) as writer:
            for step in range(10):
                writer.add_scalar("loss", 1.0 / (step + 1), step)
        reading = checks.need("tensorboard.backend.event_processing.event_accumulator")
        events = reading.EventAccumulator(folder).Reload()
        points = [(point.step, point.value) for point in events.Scalars("loss")]
    checks.expect([step for step, _ in points] == list(range(10)), f"steps are {points}")
    checks.close("the last scalar", points[-1][1], 0.1, 1e-6)
    return {"points": len(points)}


def nebula_checkpoint() -> dict[str, Any]:
    """A checkpoint saved by Nebula's names is the one that they load."""
    nebula = checks.need("nebulaml")
    model = checks.mlp().to(checks.device())
    with tempfile.TemporaryDirectory() as folder:
        nebula.init(folder)
        checkpoint = nebula.Checkpoint("step-1", 2)
        checkpoint.save("model", model.state_dict())
        checkpoint.save("progress", {"step": 1})
        latest = nebula.get_latest_checkpoint()
        checks.expect(latest is not None and latest.tag == "step-1", "no checkpoint was found")
        state, progress = latest.load("model"), latest.load("progress")
    checks.expect(progress == {"step": 1}, f"the progress is {progress}")
    return {"equal_tensors": checks.equal_states(dict(model.state_dict()), dict(state))}


def msccl_settings() -> dict[str, Any]:
    """Each Python of the environment reads MSCCL's settings as NCCL's own."""
    checks.need("msccl")
    expected = {"MSCCL,RING": "RING", "MSCCL,RING,TREE": "", "MSCCL": "", "TREE": "TREE"}
    for setting, algorithms in expected.items():
        program = "import os; print(os.environ.get('NCCL_ALGO', ''))"
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "NCCL_ALGO": setting, "MSCCL_XML_FILES": ""},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        read = ended.stdout.strip()
        checks.expect(read == algorithms, f"NCCL_ALGO={setting} is read as `{read}`")
    return {"settings": len(expected)}
