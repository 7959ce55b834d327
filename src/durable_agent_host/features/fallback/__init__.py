"""Other clients that answer when the service of an agent's own does not."""
