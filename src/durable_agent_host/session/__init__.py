"""A session's decisions on its stored conversation: which turn may run, what is sent, what is repaired.

Every function is pure: no IO, no clock, no random.
"""
