import subprocess
import sys

sys.exit(subprocess.run(["bash", "-c", "python tokenizer.py"]).returncode)
