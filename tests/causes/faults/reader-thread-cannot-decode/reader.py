import queue
import threading


class Reader:
    """Reads lines ahead in a thread."""

    def __init__(self, path, depth=8):
        self.path = path
        self.lines = queue.Queue(depth)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with open(self.path, encoding="utf-8") as file:
            for line in file:  # here
                self.lines.put(line.strip())
        self.lines.put(None)

    def __iter__(self):
        while (line := self.lines.get(timeout=2)) is not None:
            yield line
