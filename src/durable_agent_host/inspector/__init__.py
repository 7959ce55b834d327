"""The inspector: one page that shows agents, sessions and turns, made of nothing but the public routes."""
