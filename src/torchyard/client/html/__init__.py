"""Objects of the SDK as HTML, at the end of a notebook's cell."""
