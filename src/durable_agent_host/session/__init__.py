"""What a session decides of its stored conversation: who may run, what is sent, what is repaired. Pure."""
