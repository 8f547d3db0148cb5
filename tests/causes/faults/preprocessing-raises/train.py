import subprocess
import sys

subprocess.run([sys.executable, "preprocess.py"], check=True)
