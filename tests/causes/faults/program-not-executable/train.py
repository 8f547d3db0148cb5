import subprocess

subprocess.run(["./tokenize.sh"], check=True)  # here
