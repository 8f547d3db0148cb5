import time

ROWS = [{"tokens": [5, 3, 8], "label": 1}, {"tokens": [2, 9], "label": 0}]


class Throughput:
    """Prints the pace of what is done within it."""

    def __enter__(self):
        self.since, self.steps = time.perf_counter(), 0
        return self

    def __exit__(self, *error):
        seconds = time.perf_counter() - self.since
        print(f"{1000 * seconds / self.steps:.1f} ms a step")  # here


def loss_of(row):
    return abs(sum(row["tokens"]) / 10 - row["labels"])  # here


def train(rows):
    total = 0.0
    with Throughput() as meter:
        for row in rows:
            total += loss_of(row)
            meter.steps += 1
    return total / len(rows)


print("training on", len(ROWS), "rows")
print(train(ROWS))
