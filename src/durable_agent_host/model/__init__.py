"""Values: a session, a turn and its end."""
