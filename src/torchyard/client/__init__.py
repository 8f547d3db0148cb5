"""The Python SDK: the nouns of a workspace over HTTP, and the job that `command()` builds."""

from torchyard.client.command_jobs import CommandJob, Input, Output, command
from torchyard.client.connection import Client, connect

__all__ = ["Client", "CommandJob", "Input", "Output", "command", "connect"]
