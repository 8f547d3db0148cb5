"""The web page: its files, signing in to it, and the one stream of events that it follows.

It speaks HTTP and calls the actions of other packages; what it shows comes from the native API.
"""
