import json
import queue
import threading


class EventWriter:
    """Writes events in the background, until it is closed."""

    def __init__(self, path):
        self.file = open(path, "w")
        self.events = queue.Queue()
        self.thread = threading.Thread(target=self._write, name="event-writer")
        self.thread.start()  # here

    def add_scalar(self, tag, value, step):
        self.events.put({"tag": tag, "value": value, "step": step})

    def close(self):
        self.events.put(None)
        self.thread.join()
        self.file.close()

    def _write(self):
        while True:
            event = self.events.get()  # here
            if event is None:
                return
            self.file.write(json.dumps(event) + "\n")
            self.file.flush()
