"""One turn as data: its steps, its request and outcome on the wire. Pure."""
