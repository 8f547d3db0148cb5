import json


class MetricWriter:
    def __init__(self, path, flush_every):
        if flush_every < 1:
            raise ValueError(f"flush_every must be at least 1, not {flush_every}")  # here
        self.flush_every = flush_every
        self.rows = []
        self.file = open(path, "w")

    def log(self, **values):
        self.rows.append(json.dumps(values))
        if len(self.rows) >= self.flush_every:
            self.close()

    def close(self):
        self.file.write("\n".join(self.rows))
        self.rows.clear()

    def __del__(self):
        self.close()
        self.file.close()


def main(steps):
    print(f"training for {steps} steps")
    writer = MetricWriter("metrics.jsonl", flush_every=steps // 100)  # here
    for step in range(steps):
        writer.log(step=step, loss=1 / (step + 1))


main(steps=80)
