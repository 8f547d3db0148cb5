"""The rendezvous of nodes, and what they check together before the first rank."""
