"""The names of models, as their services say them: any text, so they are bounded before they are kept. Pure."""

from typing import Final

MAX_CHARACTERS: Final = 100
"""Of a model's name; those of the services have fewer than 60."""


def bounded_name(name: str) -> str:
    """Cut the name of a model. Guarantee: pure; a name of up to 100 characters is unchanged."""
    return name if len(name) <= MAX_CHARACTERS else name[: MAX_CHARACTERS - 1] + "…"
