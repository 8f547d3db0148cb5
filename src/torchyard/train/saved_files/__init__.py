"""Save files whole and in the background, with torch.save or as torch.save.

Owns: the modules of this package.
Leaves: states of several ranks to `checkpoint`.
Always: none of them imports torch.
"""
