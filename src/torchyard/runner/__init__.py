"""`yard-runner`: the small privileged program that starts jobs as their people's Unix accounts.

It runs as root beside a shared server, and uses the standard library and `shared/` only.
"""
