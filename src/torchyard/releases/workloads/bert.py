"""A tiny BERT that learns a set shaped as GLUE's, for the workloads that train it."""

from __future__ import annotations

import tempfile
from typing import Any

from . import checks


def train(batch: int = 32, **arguments: Any) -> dict[str, Any]:
    """Train it by Hugging Face's Trainer: accuracy, loss, steps, the type that does the steps.

    Its weights come from its configuration, its tokens from a generator: nothing is downloaded.
    """
    transformers = checks.need("transformers")
    checks.need("accelerate")  # what its Trainer is made of
    torch = checks.need("torch")
    torch.manual_seed(7)
    # Two sentences of five words about one of two topics each; they agree where the topic is one.
    generator = torch.Generator().manual_seed(7)

    def rows(count: int) -> list[dict[str, Any]]:
        made = []
        for _ in range(count):
            topics = torch.randint(0, 2, (2,), generator=generator)
            words = torch.randint(0, 20, (2, 5), generator=generator) + 10 + 20 * topics[:, None]
            tokens = [1, *words[0].tolist(), 2, *words[1].tolist(), 2]
            kinds = [0] * 7 + [1] * 6
            same = int(topics[0] == topics[1])
            made.append({"input_ids": tokens, "token_type_ids": kinds, "labels": same})
        return made

    config = transformers.BertConfig(
        vocab_size=60, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=16, num_labels=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder, num_train_epochs=8, per_device_train_batch_size=batch,
            learning_rate=1e-3, save_strategy="no", report_to=[], disable_tqdm=True,
            logging_strategy="no", seed=7, use_cpu=checks.device() == "cpu", **arguments,
        )  # fmt: skip
        trainer = transformers.Trainer(model, settings, train_dataset=rows(1024))
        trained = trainer.train()
        predicted = trainer.predict(rows(256))
    accuracy = float((predicted.predictions.argmax(1) == predicted.label_ids).mean())
    return {
        "accuracy": checks.at_least("accuracy", accuracy, 0.9),
        "loss": float(trained.training_loss),
        "steps": int(trained.global_step),
        "engine": type(trainer.model_wrapped).__name__,
    }
