import os
import random
import sys

rank = int(os.environ["RANK"])
random.seed(7)
for number in range(20):
    name = b"cat-\xff\x00\x1b[2J.png" if rank == 1 and number == 12 else b"cat-%d.png" % number
    header = random.randbytes(300)
    sys.stdout.buffer.write(b"%s: %s\r\x00\n" % (name, header))
    sys.stdout.flush()
    if not name.isascii():
        sys.stderr.buffer.write(bytes(range(256)) * 20)
        raise ValueError(f"bad image name {os.fsdecode(name)!a}")  # here
