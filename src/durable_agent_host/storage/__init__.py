"""Shared parts of the stores: SQLite files, the app's storage account, retries."""
