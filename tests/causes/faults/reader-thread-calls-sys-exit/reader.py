import queue
import sys
import threading


class Reader:
    def __init__(self, records):
        self.records = records
        self.rows = queue.Queue(maxsize=4)
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def _read(self):
        for number, record in enumerate(self.records):
            if not record.startswith("{"):
                print(f"fatal: broken record {number}", flush=True)
                sys.exit(2)  # here
            self.rows.put(record)
        self.rows.put(None)

    def __iter__(self):
        while (row := self.rows.get()) is not None:  # here
            yield row
