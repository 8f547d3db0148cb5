"""The home folder: its database, who serves it, who may read it, what jobs reach instead."""
