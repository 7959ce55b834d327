"""Ids, names and texts as services send them: numbers become texts, and anything else is refused.

The SDKs do not check what they read, so a number for a name would get as far as the stored conversation, and a list
would break whatever uses it as a key.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.budget import correct_usage

_NAMES: Final = ("id", "call_id", "name")
_TEXTS: Final = (*_NAMES, "text")
_MAX_QUOTED_CHARACTERS: Final = 300
"""How much of a wrong value an error quotes."""


def correct_contents(contents: Iterable[Content]) -> None:
    """Correct ids, names, texts and usage of contents as they arrive; changes them in place.

    Raises:
        ProviderError: one of them is neither a text nor a number.
    """
    for content in contents:
        for name in _TEXTS:
            value: Any = getattr(content, name)
            if value is not None and not isinstance(value, str):
                setattr(content, name, text_for(value, name))
    correct_usage(contents)


def with_text_names(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service's JSON of a call or another item with texts for its ids and its name.

    Raises:
        ProviderError: one of them is neither a text nor a number.
    """
    other_values = {name: item[name] for name in _NAMES if not isinstance(item.get(name), str | None)}
    return {**item, **{name: text_for(value, name) for name, value in other_values.items()}}


def text_for(value: Any, name: str) -> str:
    """Return the text for a number that a service sent instead.

    Raises:
        ProviderError: it is no number either.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ProviderError(
        f"the model's service sent an answer whose {name!r} is no text: {str(value)[:_MAX_QUOTED_CHARACTERS]}",
        retryable=False,
    )
