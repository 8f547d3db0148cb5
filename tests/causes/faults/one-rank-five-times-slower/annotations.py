import time


class Annotations:
    """The boxes of the images; read once, if they may be kept in memory."""

    def __init__(self, keep):
        self.keep, self.boxes = keep, None

    def of(self, image):
        if self.boxes is None or not self.keep:
            time.sleep(0.2)  # It is a file of 400 MB.
            self.boxes = {number: (number, number, 8, 8) for number in range(100)}
        return self.boxes[image]
