"""Azure ML's protocols: its clients' requests become actions of other packages, and responses
Azure's JSON.
"""
