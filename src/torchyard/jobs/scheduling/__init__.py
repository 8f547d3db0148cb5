"""Which queued job gets nodes, and what is prepared before."""
