"""The server's end of the tunnels that nodes open; see decision 0068."""
