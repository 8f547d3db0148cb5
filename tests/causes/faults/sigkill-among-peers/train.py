import os
import signal

import ring

ring.join()
if ring.RANK == 1:
    os.kill(os.getpid(), signal.SIGKILL)
ring.all_reduce()
