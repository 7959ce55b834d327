"""One turn as data: its steps, its request and outcome on the wire.

Every function is pure, as far as the app's own redaction is: no IO, no clock, no random.
"""
