"""The queue of rows that are still to be labelled."""


class LabelQueue:
    def __init__(self, rows):
        self.rows = list(rows)

    def next(self):
        return self.rows.pop(0) if self.rows else None
