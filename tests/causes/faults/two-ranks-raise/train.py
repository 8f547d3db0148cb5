import time

import ring

ring.join()
time.sleep({2: 0.2, 0: 0.9}.get(ring.RANK, 60))
raise ValueError(f"bad label of rank {ring.RANK}")  # here
