"""HTTP through a folder that the server and a node both see, where no network leads from one to
the other."""
