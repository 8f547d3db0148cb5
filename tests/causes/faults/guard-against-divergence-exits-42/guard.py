import sys


class DivergenceGuard:
    """Gives up when the loss is above the limit too often."""

    def __init__(self, limit, patience):
        self.limit, self.patience, self.strikes = limit, patience, 0

    def check(self, step, loss):
        self.strikes = self.strikes + 1 if loss > self.limit else 0
        if self.strikes >= self.patience:
            print(f"step {step}: loss {loss:.1f} above {self.limit}, giving up", flush=True)
            sys.exit(42)  # here
