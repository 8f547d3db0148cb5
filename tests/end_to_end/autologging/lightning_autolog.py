"""A network trained by Lightning; parameters, metrics, model and checkpoint logged by MLflow."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import mlflow


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        images, digits = batch
        loss = torch.nn.functional.cross_entropy(self(images), digits)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        images, digits = batch
        self.log("accuracy", (self(images).argmax(1) == digits).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


lightning.seed_everything(7)
dataset = load_digits()
everything = TensorDataset(
    torch.tensor(dataset.data / 16, dtype=torch.float32), torch.tensor(dataset.target)
)
training, testing = torch.utils.data.random_split(everything, [1500, 297])
mlflow.pytorch.autolog()
trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", enable_progress_bar=False)
trainer.fit(Digits(), DataLoader(training, 100), DataLoader(testing, 297))
