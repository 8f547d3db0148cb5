"""Data: snapshots that arrive, datastores, data assets, and what nodes keep of them."""
