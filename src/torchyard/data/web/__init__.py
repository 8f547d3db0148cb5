"""Files on the web, read without a package of their own."""
