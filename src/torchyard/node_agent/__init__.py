"""The program that makes a machine a node: `yard node join`."""
