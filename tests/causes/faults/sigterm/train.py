import os
import signal

# Stands for somebody else who does it.
os.kill(os.getpid(), signal.SIGTERM)
