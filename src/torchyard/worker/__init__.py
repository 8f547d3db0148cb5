"""The program on each node of an attempt: prepares, spawns the ranks, ships logs, reports.

Always: standard library only, Python 3.9 and later; imports nothing of torchyard but `plan`.
"""

from __future__ import annotations

import os

# The zip that this worker runs from, or the folder of sources in tests: what a program that the
# worker starts puts on its path.
IMPORT_PATH = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
