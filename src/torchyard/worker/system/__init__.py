"""Processes, cgroups, networks, devices and mounts of this machine."""
