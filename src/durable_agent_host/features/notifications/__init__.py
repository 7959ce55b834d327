"""Notifications: the app, or a URL, is told that a turn waits or has ended, or that a run of a workflow waits."""
