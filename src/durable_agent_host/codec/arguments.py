"""The arguments of a function call: JSON text on the wire, an object in upstream's state. Pure.

The text is preserved exactly: when compact or spaced encoding of the object gives the same text, only the form is
recorded, otherwise the text itself.
"""

import json
from collections.abc import Callable
from json import encoder
from typing import Any, Final, cast

from durable_agent_host.codec.nesting import is_nested_too_deeply, names_python_class

COMPACT: Final = "compact"
"""Form of a text equal to the compact encoding; the other usual form, spaced, needs no record."""
OBJECT: Final = "object"
"""Form of arguments that are not a text."""


def _text_of(public: json.JSONEncoder) -> Callable[[Any], str]:
    """Make a function that writes text like an encoder, without its new C encoder for each text.

    Creating one takes twice as long as writing the arguments of a call. Where this Python has none, or a different one,
    the public API is used.
    """
    make: Any = getattr(encoder, "c_make_encoder", None)
    strings = encoder.encode_basestring_ascii if public.ensure_ascii else encoder.encode_basestring
    try:
        kept = make(None, public.default, strings, None, public.key_separator, public.item_separator, *_NO)
        if "".join(kept(_SAMPLE, 0)) == public.encode(_SAMPLE):
            return lambda value: "".join(kept(value, 0))
    except TypeError:
        pass
    return public.encode


_NO: Final = (False, False, False)
"""No sorted keys, no skipped keys, no NaN."""
_SAMPLE: Final = {"text": "größer\n", "numbers": [1, 2.5, -0.0, None, True], "nested": {"list": [{"a": 1}]}}
_COMPACT_TEXT: Final = _text_of(json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False))
_SPACED_TEXT: Final = _text_of(json.JSONEncoder(allow_nan=False))
_PARSE: Final = json.JSONDecoder().raw_decode


def stored_arguments(arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Encode arguments for storage.

    Guarantee: pure; `live_arguments`, or ``argumentsText`` where recorded, restores them.

    Args:
        arguments: a text, JSON or not, an object, or None.

    Returns:
        The object for upstream's reader, and the fields of our extension: ``argumentsForm``, ``argumentsText``, or
        nothing for the spaced form.
    """
    if arguments is None:
        return {}, {"argumentsText": None}
    if not isinstance(arguments, str):
        return arguments, {"argumentsForm": OBJECT}
    try:
        # text after an object makes it differ from the encoded one
        value: Any = _PARSE(arguments)[0] if arguments.startswith("{") else json.loads(arguments)
        # a document has no room for as many levels, and the task hub makes objects of Python where they are named
        if not isinstance(value, dict) or is_nested_too_deeply(value) or names_python_class(arguments):
            return {}, {"argumentsText": arguments}
        if _COMPACT_TEXT(value) == arguments:  # Python reads NaN and 1e999, which the encoder refuses
            return cast("dict[str, Any]", value), {"argumentsForm": COMPACT}
        if _SPACED_TEXT(value) == arguments:
            return cast("dict[str, Any]", value), {}
        json.loads(arguments)
    except (ValueError, RecursionError):
        return {}, {"argumentsText": arguments}
    return cast("dict[str, Any]", value), {"argumentsText": arguments}


def live_arguments(stored: Any, form: str | None) -> Any:
    """Decode arguments without a recorded text. Guarantee: pure.

    Args:
        stored: the value in upstream's field.
        form: from `stored_arguments`, or None.

    Returns:
        The text, or the stored value when it is not an object to be written as text.

    Raises:
        TypeError, ValueError: the value cannot be written as JSON text.
    """
    if form == OBJECT or isinstance(stored, str):
        return stored
    return (_COMPACT_TEXT if form == COMPACT else _SPACED_TEXT)(stored or {})
