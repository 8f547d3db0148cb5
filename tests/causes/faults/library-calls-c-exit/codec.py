import ctypes
import os

# Stands for a vendor's decoder, which treats a missing license as fatal.
_library = ctypes.CDLL(None)


class Decoder:
    def __init__(self, seats):
        self.seats = seats

    def decode(self, frame):
        if self.seats == 0:
            os.write(2, b"libvcodec: no license left for this host\n")
            _library.exit(3)
        return frame * 2
