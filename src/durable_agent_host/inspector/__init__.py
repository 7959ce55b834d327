"""The inspector: one page that shows agents, sessions and turns, using only the public routes."""
