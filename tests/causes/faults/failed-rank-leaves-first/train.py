import time

import ring

ring.join()
try:
    if ring.RANK == 2:
        raise ValueError("bad label 7")  # here
    ring.all_reduce()
finally:
    ring.leave()
    if ring.RANK == 2:
        time.sleep(0.5)
