"""The Python SDK: the nouns of a workspace over HTTP. Its public names are those of `torchyard`."""
