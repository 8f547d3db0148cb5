"""Validations, audits and releases of environments, over HTTP."""
