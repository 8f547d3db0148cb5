"""One real step of PyTorch, of its domain libraries and of what trains with it.

Always: a package is imported inside the step of its own component only; numbers are asserted.
"""

from __future__ import annotations

from typing import Any


def torch() -> str:
    """Train a line until it fits."""
    import torch

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(64, 4, device=device)
    y = x.sum(1, keepdim=True)
    line = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(line.parameters(), 0.1)
    losses = []
    for _ in range(50):
        loss = (line(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 100, losses
    return f"50 steps of SGD on {device}: loss {losses[0]:.3f} to {losses[-1]:.1e}"


def torchvision() -> str:
    """A ResNet-18 forward and backward."""
    import torch
    import torchvision

    torch.manual_seed(0)
    network = torchvision.models.resnet18(weights=None)
    answer = network(torch.randn(2, 3, 64, 64))
    answer.sum().backward()
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert tuple(answer.shape) == (2, 1000)
    assert parameters == 11_689_512, parameters
    assert all(parameter.grad is not None for parameter in network.parameters())
    return "resnet18, 11,689,512 parameters, forward and backward of 2 pictures"


def torchaudio() -> str:
    """Resample a tone, and find it again in its spectrum."""
    import math

    import torch
    import torchaudio

    seconds = torch.arange(16_000) / 16_000
    tone = torch.sin(2 * math.pi * 440 * seconds)
    half = torchaudio.functional.resample(tone, 16_000, 8_000)
    spectrum = torchaudio.transforms.Spectrogram(n_fft=800)(half).mean(-1)
    loudest_hz = int(spectrum.argmax()) * 10
    assert half.shape == (8_000,)
    assert loudest_hz == 440, loudest_hz
    return "resampled 16 to 8 kHz, spectrogram has its peak at 440 Hz"


def torchmetrics() -> str:
    """Accuracy of known answers."""
    import torch
    import torchmetrics

    accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
    accuracy.update(torch.tensor([0, 1, 2, 1]), torch.tensor([0, 1, 1, 1]))
    assert accuracy.compute().item() == 0.75
    return "Accuracy of 3 right answers in 4: 0.75"


def pytorch_lightning() -> str:
    """Fit a line by Trainer, with a metric of torchmetrics in the log."""
    import pytorch_lightning

    return _fit(pytorch_lightning)


def lightning() -> str:
    """The same by the package's newer name."""
    import lightning

    return _fit(lightning)


def _fit(package: Any) -> str:
    import torch
    import torchmetrics

    class Line(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(4, 1)
            self.error = torchmetrics.MeanSquaredError()
            self.losses: list[float] = []

        def training_step(self, batch: Any, number: int) -> Any:
            answer = self.line(batch[0])
            loss = (answer - batch[1]).pow(2).mean()
            self.error(answer.detach(), batch[1])
            self.log("error", self.error, on_step=False, on_epoch=True)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    line = Line()
    trainer = package.Trainer(
        max_epochs=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(line, torch.utils.data.DataLoader(data, batch_size=16))
    assert line.losses[-1] < line.losses[0] / 10, line.losses
    mean = sum(line.losses[-4:]) / 4
    assert abs(trainer.callback_metrics["error"].item() - mean) < 1e-5, trainer.callback_metrics
    return f"Trainer.fit, 20 steps: loss {line.losses[0]:.3f} to {line.losses[-1]:.3f}"


def transformers() -> str:
    """A tiny BERT from its configuration: forward, loss, backward, a step of Trainer."""
    import torch
    import transformers

    torch.manual_seed(0)
    size = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    network = transformers.BertForSequenceClassification(size)
    answer = network(torch.tensor([[1, 2, 3], [4, 5, 6]]), labels=torch.tensor([0, 1]))
    answer.loss.backward()
    assert tuple(answer.logits.shape) == (2, 2)
    assert 0.3 < answer.loss.item() < 1.5
    # Trainer runs on Accelerate.
    arguments = transformers.TrainingArguments("trainer", max_steps=1, report_to=[])
    rows = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(1)}] * 8
    outcome = transformers.Trainer(network, arguments, train_dataset=rows).train()
    assert outcome.global_step == 1 and 0.01 < outcome.training_loss < 3, outcome
    loss = answer.loss.item()
    return f"tiny BERT from its configuration: loss {loss:.3f}, backward, a step of Trainer"


def accelerate() -> str:
    """One step of a prepared model."""
    import accelerate
    import torch

    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=not torch.cuda.is_available())
    line = torch.nn.Linear(4, 1)
    line, optimizer = accelerator.prepare(line, torch.optim.SGD(line.parameters(), 0.1))
    x = torch.randn(64, 4, device=accelerator.device)
    losses = []
    for _ in range(20):
        loss = (line(x) - x.sum(1, keepdim=True)).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10, losses
    return f"20 steps by Accelerator: loss {losses[0]:.3f} to {losses[-1]:.3f}"
