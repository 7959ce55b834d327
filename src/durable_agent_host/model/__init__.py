"""Values: what a session, a turn and its end are."""
