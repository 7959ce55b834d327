"""Blueprints of the app."""
