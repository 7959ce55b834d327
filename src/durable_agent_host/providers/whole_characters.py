"""Half of a surrogate pair is sent as the replacement character, since UTF-8 cannot represent it.

A model can cut a text inside a character, or write half of one as an escape, anywhere in its answer: in a text, in
arguments, in an id. It is stored as it came, and every later request repeats it; so the place where requests are
written is the one that covers all of it, the results of tools included.
"""

# ruff: noqa: SLF001 - SDKs have no public way to write a body

from typing import Any, Final, cast

from durable_agent_host.agent.overriding import copy_with
from durable_agent_host.loops.giving_way import resting

_PART_CHARACTERS: Final = 64 * 1024
_BODIES: Final = ("json_data", "extra_json")


def sends_whole_characters(sdk: Any) -> Any:
    """Copy a client of an SDK so that it can send every text.

    Guarantee: pure; bodies that the given client can write are the same.

    Args:
        sdk: of OpenAI or Anthropic, which write bodies as UTF-8 without escapes.

    Returns:
        A copy that shares the connections.
    """
    return copy_with(sdk, _SendsWholeCharacters)


def without_lone_surrogates(value: Any) -> Any:
    """Make texts encodable as UTF-8.

    Guarantee: pure.

    Args:
        value: JSON values at any depth.

    Returns:
        The same value, or a copy where something changed.
    """
    if isinstance(value, str):
        return value if _is_utf8(value) else _whole(value)
    if isinstance(value, list):
        return [without_lone_surrogates(one) for one in resting(cast("list[Any]", value))]
    if isinstance(value, dict):
        known = cast("dict[Any, Any]", value)
        return {without_lone_surrogates(name): without_lone_surrogates(one) for name, one in known.items()}
    return value


def encoded(text: str) -> bytes:
    """Encode a text as UTF-8. Guarantee: pure."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _whole(text).encode()


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        for start in range(0, len(text), _PART_CHARACTERS):  # other threads run between two parts
            text[start : start + _PART_CHARACTERS].encode()
    except UnicodeEncodeError:
        return False
    return True


class _SendsWholeCharacters:
    """The override; stands before the SDK's own class in the method resolution order."""

    def _build_request(self, options: Any, **kwargs: Any) -> Any:
        client: Any = super()
        try:
            return client._build_request(options, **kwargs)
        except UnicodeEncodeError:
            bodies = {name: without_lone_surrogates(getattr(options, name)) for name in _BODIES}
            return client._build_request(options.model_copy(update=bodies), **kwargs)
