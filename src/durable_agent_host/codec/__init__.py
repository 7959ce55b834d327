"""Values to JSON and back: for session storage and the durable boundary.

Every function is pure, except for arguments that its docstring says it changes.
"""
