import subprocess
import sys

child = subprocess.run([sys.executable, "-c", "import os; os._exit(3)"])
if child.returncode:
    raise RuntimeError(f"the tokenizer died with {child.returncode}")  # here
