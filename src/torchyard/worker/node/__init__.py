"""The program on each node: the node's life, its supervisor, preparation and delivery."""
