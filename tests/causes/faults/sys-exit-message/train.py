import os
import sys

if not os.path.exists("model"):
    sys.exit("no checkpoint in ./model")  # here
