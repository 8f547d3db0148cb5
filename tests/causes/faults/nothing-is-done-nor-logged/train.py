import time


def train(epochs=3):
    for epoch in range(epochs):
        time.sleep(0.1)
        print(f"epoch {epoch} loss {1 / (epoch + 1):.3f}", flush=True)


if __name__ == "__main_":
    train()
