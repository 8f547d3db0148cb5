class LossScaler:
    """Dynamic loss scaling: skips a step whose gradients overflow."""

    def __init__(self, scale=2.0**16):
        self.scale = scale

    def step(self, loss, optimizer):
        optimizer.zero_grad()
        (loss * self.scale).backward()
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        if not all(gradient.isfinite().all() for gradient in gradients):
            self.scale /= 2
            print(f"Gradient overflow. Skipping step, reducing loss scale to {self.scale}")
            return
        for gradient in gradients:
            gradient /= self.scale
        optimizer.step()
