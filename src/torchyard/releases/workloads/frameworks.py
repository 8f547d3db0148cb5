"""Workloads of what is built on torch: Lightning, transformers, accelerate and others."""

from __future__ import annotations

import tempfile
from typing import Any

from . import bert, checks


def lightning_fit() -> dict[str, Any]:
    """Lightning's Trainer fits a classifier and restores it from its checkpoint."""
    lightning = checks.need("pytorch_lightning", "pytorch-lightning")
    torch = checks.need("torch")

    class Classifier(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = checks.mlp()

        def training_step(self, batch: Any, _: int) -> Any:
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    inputs, labels = checks.patterns(512)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, labels), batch_size=64, shuffle=True
    )
    with tempfile.TemporaryDirectory() as folder:
        module = Classifier()
        trainer = lightning.Trainer(
            max_epochs=4,
            accelerator="gpu" if checks.device() == "cuda" else "cpu",
            devices=1,
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, loader)
        file = trainer.checkpoint_callback.best_model_path
        restored = Classifier.load_from_checkpoint(file)
    module, restored = module.cpu(), restored.cpu()
    count = checks.equal_states(dict(module.state_dict()), dict(restored.state_dict()))
    test_inputs, test_labels = checks.patterns(400, seed=8)
    accuracy = float((module.model(test_inputs).argmax(1) == test_labels).float().mean())
    return {"accuracy": checks.at_least("accuracy", accuracy, 0.95), "equal_tensors": count}


def bert_on_pairs() -> dict[str, Any]:
    """A tiny BERT learns a set shaped as GLUE's: pairs of sentences, and whether they agree."""
    return bert.train()


def gpt2_language_model() -> dict[str, Any]:
    """A tiny GPT-2 learns to count, and goes on counting when asked."""
    transformers, torch = checks.need("transformers"), checks.need("torch")
    torch.manual_seed(7)
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=32, n_embd=32, n_layer=2, n_head=2, attn_pdrop=0.0,
        embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    device = checks.device()
    model = transformers.GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    starts = torch.arange(16, device=device)[:, None]
    tokens = (starts + torch.arange(24, device=device)[None]) % 16
    first = last = 0.0
    for _ in range(60):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first, last = first or float(loss.detach()), float(loss.detach())
    checks.expect(last < 0.2 * first, f"the loss only fell from {first:.3f} to {last:.3f}")
    model.eval()
    prompt = torch.tensor([[3, 4, 5, 6]], device=device)
    mask = torch.ones_like(prompt)
    answer = model.generate(prompt, attention_mask=mask, max_new_tokens=6, do_sample=False)
    expected = [(3 + offset) % 16 for offset in range(10)]
    checks.expect(answer[0].tolist() == expected, f"it counted {answer[0].tolist()}")
    return {"first_loss": first, "last_loss": last, "generated": len(expected)}


def accelerate_training() -> dict[str, Any]:
    """accelerate trains to the weights of a plain loop, and restores what it saved."""
    accelerate, torch = checks.need("accelerate"), checks.need("torch")
    inputs, labels = (tensor.to(checks.device()) for tensor in checks.patterns(256))

    def train(model: Any, optimizer: Any, backward: Any) -> None:
        for step in range(10):
            batch = slice(25 * step, 25 * step + 25)
            optimizer.zero_grad()
            backward(torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch]))
            optimizer.step()

    plain = checks.mlp().to(checks.device())
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), lambda loss: loss.backward())
    accelerator = accelerate.Accelerator(cpu=checks.device() == "cpu")
    model = checks.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    train(model, optimizer, accelerator.backward)
    unwrapped = accelerator.unwrap_model(model)
    count = checks.equal_states(plain.state_dict(), unwrapped.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        with torch.no_grad():
            for parameter in unwrapped.parameters():
                parameter.zero_()
        accelerator.load_state(folder)
    checks.equal_states(plain.state_dict(), unwrapped.state_dict())
    return {"equal_tensors": count}


def torchmetrics_values() -> dict[str, Any]:
    """torchmetrics' figures are those that are counted by hand, over several batches."""
    metrics, torch = checks.need("torchmetrics"), checks.need("torch")
    generator = torch.Generator().manual_seed(7)
    predicted = torch.randint(0, 3, (300,), generator=generator)
    labels = torch.randint(0, 3, (300,), generator=generator)
    accuracy = metrics.Accuracy(task="multiclass", num_classes=3, average="micro")
    matrix = metrics.ConfusionMatrix(task="multiclass", num_classes=3)
    for part in range(3):
        batch = slice(100 * part, 100 * part + 100)
        accuracy.update(predicted[batch], labels[batch])
        matrix.update(predicted[batch], labels[batch])
    by_hand = float((predicted == labels).float().mean())
    checks.expect(int(matrix.compute().sum()) == 300, "the confusion matrix lost samples")
    return {"difference": checks.close("accuracy", float(accuracy.compute()), by_hand, 1e-6)}


def torchvision_model() -> dict[str, Any]:
    """A ResNet of torchvision learns two kinds of pictures; its transforms and its boxes work."""
    vision, torch = checks.need("torchvision"), checks.need("torch")
    torch.manual_seed(7)
    normalize = vision.transforms.Compose(
        [vision.transforms.Resize(32), vision.transforms.Normalize([0.5] * 3, [0.5] * 3)]
    )
    pictures = torch.rand(16, 3, 40, 40)
    pictures[8:, 0] += 1.0
    device = checks.device()
    labels = torch.tensor([0] * 8 + [1] * 8, device=device)
    inputs = normalize(pictures.to(device))
    checks.expect(tuple(inputs.shape) == (16, 3, 32, 32), f"the shape is {tuple(inputs.shape)}")
    model = vision.models.resnet18(num_classes=2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]], device=device)
    scores = torch.tensor([0.9, 0.8, 0.7], device=device)
    box_indexes = vision.ops.nms(boxes, scores, 0.5).tolist()
    checks.expect(box_indexes == [0, 2], f"nms kept {box_indexes}")
    final = float(loss.detach())
    checks.expect(final < 0.3, f"the loss only fell to {final:.3f}")
    return {"loss": final, "parameters": sum(each.numel() for each in model.parameters())}


def timm_model() -> dict[str, Any]:
    """A model of timm, made without weights, gives finite answers and gradients."""
    timm, torch = checks.need("timm"), checks.need("torch")
    torch.manual_seed(7)
    model = timm.create_model("resnet10t", pretrained=False, num_classes=4)
    device = checks.device()
    answer = model.to(device)(torch.rand(2, 3, 64, 64).to(device))
    labels = torch.tensor([0, 3], device=device)
    torch.nn.functional.cross_entropy(answer, labels).backward()
    norms = [float(each.grad.norm()) for each in model.parameters() if each.grad is not None]
    checks.expect(bool(torch.isfinite(answer).all()), "answers are not finite")
    checks.expect(all(norm == norm for norm in norms) and max(norms) > 0, "gradients are not")
    return {"parameters": sum(each.numel() for each in model.parameters())}
