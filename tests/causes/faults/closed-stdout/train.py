import os
import sys

sys.stdout = open(1, "w", closefd=False)
print("accuracy 0.93")
os.close(1)
raise SystemExit(6)
