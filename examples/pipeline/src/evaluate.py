"""Measure the network on images that it has not seen."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from network import load_images, make_network

import mlflow


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    arguments = parser.parse_args()

    images_NCHW, labels_N = load_images(arguments.images)
    model = make_network().eval()
    model.load_state_dict(torch.load(arguments.model / "model.pt", weights_only=True))
    guesses_N = model(images_NCHW).argmax(dim=1)
    accuracy = float((guesses_N == labels_N).float().mean())
    mlflow.log_metric("accuracy", accuracy)
    arguments.report.mkdir(parents=True, exist_ok=True)
    report = {"accuracy": accuracy, "images": len(labels_N)}
    (arguments.report / "report.json").write_text(json.dumps(report))
    print(f"test accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
