"""The rendezvous of the nodes, and their checks before the first rank starts."""
