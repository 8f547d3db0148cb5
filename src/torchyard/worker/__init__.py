"""The program on each node of an attempt: prepares, spawns the ranks, ships logs, reports.

Always: standard library only, Python 3.9 and later; imports nothing of torchyard but `plan`.
"""
