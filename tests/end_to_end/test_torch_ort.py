"""A script written for `torch_ort` trains with the losses of the module itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
import copy, warnings
warnings.simplefilter("ignore")
import torch
from torch_ort import DebugOptions, LogLevel, ORTModule

torch.manual_seed(0)
plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
plain.answer = 42
wrapped = ORTModule(copy.deepcopy(plain), DebugOptions(log_level=LogLevel.INFO))
assert wrapped.answer == 42 and wrapped.state_dict().keys() == plain.state_dict().keys()
assert [n for n, _ in wrapped.named_parameters()] == [n for n, _ in plain.named_parameters()]
x = torch.randn(32, 4)

def train(model):
    model.train().to(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for _ in range(20):
        loss = (model(x.double()) - x.double().sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

losses = train(wrapped)
assert losses == train(plain) and losses[-1] < losses[0]
wrapped.eval()
assert not wrapped.module.training and wrapped.module[1].training is False
torch.testing.assert_close(wrapped(x.double()), plain.eval()(x.double()))
plain.load_state_dict(wrapped.state_dict())
try:
    import torch_ort
    torch_ort.optim
except AttributeError as error:
    assert "`optim`" in str(error)
print("trained")
"""


def test_ort_module_trains_as_the_module_does(yard: Yard, write_job: Callable[..., str]) -> None:
    job = {
        "name": "ort",
        "command": "python train.py",
        "environment": {"pip_requirements": ["torch==2.13.0", "torch-ort"]},
    }
    yard("job", "create", "-f", write_job(job, train=SCRIPT))
    done = yard.completed("ort", timeout_s=500)
    assert any("torch-ort" in notice for notice in done["notices"]), done["notices"]
    assert "trained" in yard.read("jobs/ort/files/user_logs/std_log.txt").decode()
