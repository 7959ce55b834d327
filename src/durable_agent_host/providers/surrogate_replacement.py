"""Half of a surrogate pair is sent as the replacement character, since UTF-8 cannot represent it.

A model can cut a text inside a character, or write half of one as an escape, anywhere in its response: in a text, in
arguments, in an id. It is stored unchanged, and every later request repeats it; so it is replaced where requests are
written, which also covers the results of tools.
"""

# ruff: noqa: SLF001 - SDKs have no public way to write a body

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin

_BODIES: Final = ("json_data", "extra_json")


def with_surrogate_replacement(sdk: Any) -> Any:
    """Copy a client of an SDK so that it can send every string.

    Returns:
        A copy that shares the connections.
    """
    return copy_with_mixin(sdk, _SurrogateReplacingMixin)


def without_lone_surrogates(value: Any) -> Any:
    """Return a JSON value whose texts are encodable as UTF-8."""
    if isinstance(value, str):
        return encode_text(value).decode()
    if isinstance(value, list):
        return [without_lone_surrogates(element) for element in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        return {without_lone_surrogates(name): without_lone_surrogates(element) for name, element in fields.items()}
    return value


def encode_body(body: Mapping[str, Any]) -> bytes | None:
    """Write a body as the SDKs of OpenAI and Anthropic do, or return None when it is not JSON."""
    try:
        return encode_text(json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


class _SurrogateReplacingMixin:
    """The override; precedes the SDK's own class in the method resolution order."""

    def _build_request(self, options: Any, **kwargs: Any) -> Any:
        client: Any = super()
        try:
            return client._build_request(options, **kwargs)
        except UnicodeEncodeError:
            bodies = {name: without_lone_surrogates(getattr(options, name)) for name in _BODIES}
            return client._build_request(options.model_copy(update=bodies), **kwargs)
