"""Which trials end before they are done."""
