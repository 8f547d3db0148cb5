"""One real step of what trains at scale: DeepSpeed, Horovod, FairScale, MoE, Nebula, MSCCL.

Always: each step is one process that is all of its group, by Gloo where there is no GPU; a package
is imported inside the step of its own component only; numbers are asserted.
"""

from __future__ import annotations

import os
import socket


def _alone() -> None:
    """The variables of a group of one process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0"
    )


def deepspeed() -> str:
    """Ten steps of an engine with ZeRO-1; import and report where it needs an accelerator."""
    _alone()
    import deepspeed
    import torch

    # Its transport over shared memory would be compiled first, which takes a minute and more.
    getattr(deepspeed.ops, "__compatible_ops__", {})["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        dist_backend="nccl" if torch.cuda.is_available() else "gloo", verbose=False
    )
    torch.manual_seed(0)
    small = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    engine, sharded, _, _ = deepspeed.initialize(
        model=small,
        optimizer=torch.optim.AdamW(small.parameters(), 1e-2),
        config={
            "train_batch_size": 64,
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        },
    )
    assert type(sharded).__name__ == "DeepSpeedZeroOptimizer"
    x = torch.randn(64, 4, device=engine.device)
    losses = []
    for _ in range(10):
        loss = (engine(x) - x.sum(1, keepdim=True)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    return f"10 steps of ZeRO-1, 1 rank: loss {losses[0]:.3f} to {losses[-1]:.3f}"


def horovod() -> str:
    """An allreduce over one rank, and a step of DistributedOptimizer."""
    _alone()
    import horovod.torch as hvd
    import torch

    hvd.init()
    total = hvd.allreduce(torch.full((2,), 3.0), op=hvd.Sum)
    assert (hvd.size(), total.tolist()) == (1, [3.0, 3.0])
    line = torch.nn.Linear(2, 1)
    before = line.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(line.parameters(), 0.1), named_parameters=line.named_parameters()
    )
    line(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert torch.allclose(before - line.weight, torch.full((1, 2), 0.1))
    return "1 rank: allreduce of [3, 3] is [3, 3], a step of DistributedOptimizer"


def fairscale() -> str:
    """Steps of OSS over one rank, equal to the optimizer that it shards."""
    _alone()
    import torch

    torch.distributed.init_process_group("gloo")
    from fairscale.optim.oss import OSS

    torch.manual_seed(0)
    x = torch.randn(16, 4)
    ends = []
    for sharded in (False, True):
        torch.manual_seed(1)
        line = torch.nn.Linear(4, 1)
        if sharded:
            optimizer = OSS(line.parameters(), optim=torch.optim.SGD, lr=0.1, momentum=0.9)
        else:
            optimizer = torch.optim.SGD(line.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            (line(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
            optimizer.step()
        ends.append(line.weight.detach().clone())
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)
    return "5 steps of OSS over SGD, 1 rank: weights equal to SGD's"


def ort_moe() -> str:
    """Train two experts behind a gate."""
    _alone()
    import torch
    from ort_moe.experts import FFNExpert
    from ort_moe.grids import DistributionGrid
    from ort_moe.moe import MixtureOfExpertsFunc
    from ort_moe.topKgate import TopKGate

    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    grid = DistributionGrid()
    gate = TopKGate(8, 2, dgrid=grid, k=2)
    experts = torch.nn.ModuleList(FFNExpert(8, 16, grid) for _ in range(2))
    layer = MixtureOfExpertsFunc(gate, experts, grid)
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    tokens = torch.randn(16, 8)
    losses = []
    for _ in range(30):
        loss = (layer(tokens) - tokens.flip(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    return f"30 steps of 2 experts behind a gate: loss {losses[0]:.3f} to {losses[-1]:.3f}"


def nebulaml() -> str:
    """Save a state and load it again."""
    _alone()
    import nebulaml
    import torch

    nebulaml.init(persistent_storage_path=os.path.abspath("nebula"))
    saved = {"weight": torch.arange(6.0), "step": 7}
    checkpoint = nebulaml.Checkpoint("global_step7")
    checkpoint.save("state", saved)
    loaded = nebulaml.get_latest_checkpoint().load("state")
    assert loaded["step"] == 7 and torch.equal(loaded["weight"], saved["weight"])
    return "saved global_step7 and loaded it again, equal"


def msccl() -> str:
    """Translate MSCCL's variables to NCCL's; NCCL itself runs on GPUs only."""
    from msccl import translate

    variables, notices = translate({"NCCL_ALGO": "MSCCL,RING", "MSCCL_XML_FILES": "a.xml"})
    assert variables == {"NCCL_ALGO": "RING"} and len(notices) == 2, (variables, notices)
    return "NCCL_ALGO=MSCCL,RING becomes NCCL_ALGO=RING"
