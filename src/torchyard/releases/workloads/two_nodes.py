"""Workloads of several ranks, on two nodes: every way of training gives the numbers of one process.

Each begins and ends a process group; main.py keeps the stores at which the ranks meet, and hides
all GPUs where not every rank has one of its own.
"""

from __future__ import annotations

import copy
import os
import tempfile
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Iterator

from . import bert, checks

_RATE, _ADAM_RATE, _STEPS, _BATCH = 0.1, 1e-2, 6, 32


@contextmanager
def _group() -> Iterator[Any]:
    torch = checks.need("torch")
    distributed = torch.distributed
    if distributed.is_initialized():
        yield distributed
        return
    backend = "gloo"
    if checks.device() == "cuda":
        backend = "nccl"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group(backend, timeout=timedelta(seconds=240))
    try:
        yield distributed
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def _batch(step: int, rank: int, ranks: int) -> Any:
    """This rank's share of a step's batch; of one rank all of it."""
    inputs, labels = checks.patterns(_STEPS * _BATCH)
    share = _BATCH // ranks
    first = step * _BATCH + rank * share
    rows = slice(first, first + share)
    return inputs[rows].to(checks.device()), labels[rows].to(checks.device())


def _mlp(width: int = 32) -> Any:
    """The classifier on this rank's device."""
    return checks.mlp(width).to(checks.device())


def _step(model: Any, batch: Any) -> Any:
    torch = checks.need("torch")
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def _alone(make: Any = None) -> list[float]:
    """The losses of one process with the whole batches."""
    torch = checks.need("torch")
    model = _mlp()
    optimizer = (make or torch.optim.SGD)(model.parameters(), lr=_RATE)
    losses = []
    for step in range(_STEPS):
        loss = _step(model, _batch(step, 0, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def _mean(distributed: Any, loss: Any) -> float:
    """The mean of all ranks' losses."""
    value = loss.detach().clone()
    distributed.all_reduce(value)
    return float(value) / distributed.get_world_size()


def _compare(name: str, losses: list[float], expected: list[float], limit: float) -> dict[str, Any]:
    difference = max(abs(left - two) for left, two in zip(losses, expected))
    checks.close(f"the losses of {name}", difference, 0.0, limit)
    return {"first_loss": losses[0], "last_loss": losses[-1], "difference": difference}


def ddp_digits() -> dict[str, Any]:
    """DistributedDataParallel on real handwritten digits: the accuracy, equal on every rank."""
    torch = checks.need("torch")
    inputs, labels, test_inputs, test_labels = (
        torch.from_numpy(array).to(checks.device()) for array in checks.digits()
    )
    with _group() as distributed:
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        model = torch.nn.parallel.DistributedDataParallel(_mlp(64))
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        dataset = torch.utils.data.TensorDataset(inputs, labels)
        sampler = torch.utils.data.distributed.DistributedSampler(dataset, ranks, rank, seed=7)
        loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(30):
            sampler.set_epoch(epoch)
            for batch in loader:
                optimizer.zero_grad()
                _step(model, batch).backward()
                optimizer.step()
        with torch.no_grad():
            accuracy = (model(test_inputs).argmax(1) == test_labels).double().mean()
        extremes = [accuracy.clone(), -accuracy.clone()]
        for value in extremes:
            distributed.all_reduce(value, torch.distributed.ReduceOp.MIN)
    checks.expect(float(extremes[0]) == -float(extremes[1]), "ranks have different accuracies")
    return {"accuracy": checks.at_least("accuracy", float(accuracy), 0.93), "ranks": ranks}


def ddp_parity() -> dict[str, Any]:
    """DistributedDataParallel has the losses of one process with the whole batch."""
    torch = checks.need("torch")
    with _group() as distributed:
        rank_and_size = distributed.get_rank(), distributed.get_world_size()
        model = torch.nn.parallel.DistributedDataParallel(_mlp())
        optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
        losses = []
        for step in range(_STEPS):
            loss = _step(model, _batch(step, *rank_and_size))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(_mean(distributed, loss))
    return _compare("DDP", losses, _alone(), 1e-5)


def _deepspeed(distributed: Any) -> Any:
    """DeepSpeed over the process group that there is."""
    os.environ.setdefault("DS_ACCELERATOR", checks.device())
    deepspeed = checks.need("deepspeed")
    # Its transport over shared memory would be compiled first, which takes a minute and more.
    getattr(deepspeed.ops, "__compatible_ops__", {})["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=distributed.get_backend(), verbose=False)
    return deepspeed


def _zero(stage: int, offload: bool = False) -> dict[str, Any]:
    """A stage of ZeRO has the losses of DistributedDataParallel, whose model ends the same.

    What a rank holds of the parameters between steps is a figure: of stage 3 less than all.
    """
    torch = checks.need("torch")
    with _group() as distributed:
        deepspeed = _deepspeed(distributed)
        rank_and_size = distributed.get_rank(), distributed.get_world_size()
        expected = _by_ddp(distributed)
        zero: dict[str, Any] = {"stage": stage}
        if offload:
            zero["offload_optimizer"] = {"device": "cpu"}
        if stage == 3:
            # Else parameters as small as these stay whole on each rank.
            zero["stage3_param_persistence_threshold"] = 0
        config = {
            "train_batch_size": _BATCH,
            # DeepSpeed clips by default, and DDP does not.
            "gradient_clipping": 0.0,
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            # Its own Adam for processors would be compiled first.
            "zero_force_ds_cpu_optimizer": False,
        }
        model = _mlp()
        total = sum(each.numel() for each in model.parameters())
        optimizer = torch.optim.AdamW(model.parameters(), lr=_ADAM_RATE)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        losses = []
        for step in range(_STEPS):
            loss = _step(engine, _batch(step, *rank_and_size))
            engine.backward(loss)
            engine.step()
            losses.append(_mean(distributed, loss))
        held_between = sum(each.numel() for each in model.parameters())
    if stage == 3:
        checks.expect(held_between < total, f"a rank holds all {total} parameters between steps")
    figures = _compare(f"ZeRO-{stage}", losses, expected, 1e-5)
    return {**figures, "parameters": total, "parameters_between_steps": held_between}


def _by_ddp(distributed: Any) -> list[float]:
    """The losses of DistributedDataParallel with AdamW."""
    torch = checks.need("torch")
    model = torch.nn.parallel.DistributedDataParallel(_mlp())
    optimizer = torch.optim.AdamW(model.parameters(), lr=_ADAM_RATE)
    losses = []
    for step in range(_STEPS):
        batch = _batch(step, distributed.get_rank(), distributed.get_world_size())
        loss = _step(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(_mean(distributed, loss))
    return losses


def deepspeed_zero1() -> dict[str, Any]:
    """ZeRO-1, which divides the optimizer's state, has DDP's losses."""
    return _zero(1)


def deepspeed_zero2() -> dict[str, Any]:
    """ZeRO-2, which divides the gradients, too, has DDP's losses."""
    return _zero(2)


def deepspeed_zero3() -> dict[str, Any]:
    """ZeRO-3, which divides the parameters, too, has DDP's losses."""
    return _zero(3)


def deepspeed_offload() -> dict[str, Any]:
    """ZeRO-2 with the optimizer's state in the machine's memory has DDP's losses."""
    return _zero(2, offload=True)


def bert_with_deepspeed() -> dict[str, Any]:
    """A tiny BERT learns a set shaped as GLUE's by Hugging Face's Trainer with DeepSpeed's ZeRO-1.

    Azure validates its container by this sample, with bert-large and CoLA.
    """
    with _group() as distributed:
        _deepspeed(distributed)
        ranks = distributed.get_world_size()
        config = {
            "train_micro_batch_size_per_gpu": "auto",
            "train_batch_size": "auto",
            "gradient_clipping": "auto",
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        }
        figures = bert.train(batch=32 // ranks, deepspeed=config)
    checks.expect(figures["engine"] == "DeepSpeedEngine", f"trained by {figures['engine']}")
    return {**figures, "ranks": ranks}


def fsdp2() -> dict[str, Any]:
    """Sharded data parallel by `fully_shard` has the losses of one process."""
    torch = checks.need("torch")
    with _group() as distributed:
        sharding = checks.need("torch.distributed.fsdp")
        if not hasattr(sharding, "fully_shard"):
            checks.skip(f"torch {torch.__version__} has no fully_shard")
        rank_and_size = distributed.get_rank(), distributed.get_world_size()
        model = _mlp()
        size = (rank_and_size[1],)
        mesh = torch.distributed.device_mesh.init_device_mesh(checks.device(), size)
        for layer in (model[0], model[2], model):
            sharding.fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
        local = sum(each.to_local().numel() for each in model.parameters())
        losses = []
        for step in range(_STEPS):
            loss = _step(model, _batch(step, *rank_and_size))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(_mean(distributed, loss))
    total = sum(each.numel() for each in _mlp().parameters())
    checks.expect(local < 0.6 * total, f"a rank holds {local} of {total} parameters")
    figures = _compare("FSDP2", losses, _alone(), 1e-5)
    return {**figures, "parameters": total, "parameters_of_a_rank": local}


def tensor_parallel() -> dict[str, Any]:
    """Layers divided over ranks, by columns and by rows, have the losses of one process."""
    torch = checks.need("torch")
    with _group() as distributed:
        parallel = checks.need("torch.distributed.tensor.parallel", "torch")
        ranks = distributed.get_world_size()
        mesh = torch.distributed.device_mesh.init_device_mesh(checks.device(), (ranks,))
        plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
        model = parallel.parallelize_module(_mlp(), mesh, plan)
        optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
        losses = []
        for step in range(_STEPS):
            loss = _step(model, _batch(step, 0, 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(_mean(distributed, loss))
    return _compare("tensor parallel", losses, _alone(), 1e-5)


def distributed_checkpoint() -> dict[str, Any]:
    """A checkpoint written by all ranks is read by one process, bit-equal."""
    torch = checks.need("torch")
    with _group() as distributed:
        saving = checks.need("torch.distributed.checkpoint", "torch")
        model = _mlp()
        if distributed.get_rank() == 0:
            folder = tempfile.mkdtemp(prefix="validation-")
        shared = [folder if distributed.get_rank() == 0 else ""]
        distributed.broadcast_object_list(shared)
        can_see = torch.tensor(float(os.path.isdir(shared[0])), device=checks.device())
        distributed.all_reduce(can_see)
        if float(can_see) < distributed.get_world_size():
            checks.skip("the nodes share no temporary folder")
        saving.save({"model": model.state_dict()}, checkpoint_id=shared[0])
        state = {"model": copy.deepcopy(model.state_dict())}
        for tensor in state["model"].values():
            tensor.zero_()
        saving.load(state, checkpoint_id=shared[0])
        distributed.barrier()
        if distributed.get_rank() == 0:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)
    return {"equal_tensors": checks.equal_states(dict(model.state_dict()), dict(state["model"]))}


def horovod_training() -> dict[str, Any]:
    """Horovod's names: a sum over all ranks, and the losses of one process."""
    horovod = checks.need("horovod.torch", "horovod")
    torch = checks.need("torch")
    horovod.init()
    rank, ranks = horovod.rank(), horovod.size()
    total = horovod.allreduce(torch.tensor([float(rank + 1)]), op=horovod.Sum)
    checks.close("the sum", float(total), ranks * (ranks + 1) / 2, 0.0)
    model = _mlp()
    optimizer = horovod.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=_RATE), named_parameters=model.named_parameters()
    )
    horovod.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for step in range(_STEPS):
        loss = _step(model, _batch(step, rank, ranks))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(horovod.allreduce(loss.detach(), op=horovod.Average)))
    horovod.shutdown()
    return {**_compare("Horovod", losses, _alone(), 1e-5), "ranks": ranks}


def fairscale_oss() -> dict[str, Any]:
    """fairscale's OSS divides the optimizer's state and has the losses of one process."""
    torch = checks.need("torch")
    fairscale = checks.need("fairscale.optim", "fairscale")
    with _group() as distributed:
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        model = _mlp()
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = fairscale.OSS(model.parameters(), optim=torch.optim.SGD, lr=_RATE)
        losses = []
        for step in range(_STEPS):
            loss = _step(parallel, _batch(step, rank, ranks))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(_mean(distributed, loss))
    return _compare("OSS", losses, _alone(), 1e-5)


def ort_moe_experts() -> dict[str, Any]:
    """Experts that ORT MoE spreads over ranks end with the weights of those in one process."""
    torch = checks.need("torch")
    grids, utils = checks.need("ort_moe.grids", "ort-moe"), checks.need("ort_moe.utils", "ort-moe")
    with _group() as distributed:
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        grid = grids.DistributionGrid(expert_parallel_group_size=ranks)
        single, spread = _experts(grids.DistributionGrid(), 2 * ranks), _experts(grid, 2)
        pairs = [(spread.gate.wg.weight, single.gate.wg.weight)]
        for number, expert in enumerate(spread.moe_experts):
            other = single.moe_experts[2 * rank + number]
            pairs += zip(expert.parameters(), other.parameters())
        with torch.no_grad():
            for weight, other in pairs:
                weight.copy_(other)
        start = [weight.detach().clone() for weight, _ in pairs]
        optimizers = [torch.optim.SGD(layer.parameters(), lr=0.5) for layer in (single, spread)]
        losses = []
        for step in range(_STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            tokens = [_batch(step, part, ranks)[0] for part in range(ranks)]
            # As many tokens at once as a rank has: the gate's loss is a mean over those.
            for part in tokens:
                (_error(single, part) / ranks).backward()
            loss = _error(spread, tokens[rank])
            loss.backward()
            utils.moe_module_all_reduce(spread, grid)
            for optimizer in optimizers:
                optimizer.step()
            losses.append(_mean(distributed, loss))
        apart = max(float((weight - other).abs().max()) for weight, other in pairs)
        moved = max(float((weight - old).abs().max()) for (weight, _), old in zip(pairs, start))
    checks.expect(moved > 1e-3 and losses[-1] < losses[0], f"they learned nothing: {losses}")
    return {
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "experts_of_a_rank": 2,
        "difference": checks.close("the weights", apart, 0.0, 1e-5),
    }


def _experts(grid: Any, count: int) -> Any:
    """Experts behind a gate that drops no token, this process's of twice as many as ranks."""
    torch = checks.need("torch")
    experts = checks.need("ort_moe.experts", "ort-moe")
    torch.manual_seed(7)
    total = count * grid.get_expert_parallel_world_size()
    gates = checks.need("ort_moe.topKgate", "ort-moe")
    gate = gates.TopKGate(64, total, dgrid=grid, k=2, capacity_factor=float(total))
    modules = torch.nn.ModuleList(experts.FFNExpert(64, 32, grid) for _ in range(count))
    layer = checks.need("ort_moe.moe", "ort-moe").MixtureOfExpertsFunc(gate, modules, grid)
    return layer.to(checks.device())


def _error(layer: Any, tokens: Any) -> Any:
    return (layer(tokens) - tokens.flip(1)).pow(2).mean() + layer.gate.loss
