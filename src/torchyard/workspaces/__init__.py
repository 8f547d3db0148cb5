"""Workspaces: people, their roles and tokens, quotas and the audit log.
---"""
