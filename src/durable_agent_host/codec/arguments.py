"""The arguments of a function call: JSON text on the wire, an object in upstream's state. Pure.

The text is kept to the letter: when compact or spaced dumping of the object gives the same text, only the form is
noted, else the text itself.
"""

import json
from collections.abc import Callable
from json import encoder
from typing import Any, Final, cast

COMPACT: Final = "compact"
"""Form of a text that compact dumping of the object gives; the other usual form, spaced, needs no note."""
OBJECT: Final = "object"
"""Form of arguments that are no text."""


def _text_of(public: json.JSONEncoder) -> Callable[[Any], str]:
    """Make a function that writes text as an encoder does, without its new C encoder for each text.

    To make one takes twice as long as to write the arguments of a call. Where this Python has none, or another one,
    the public way does.
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
    """Write arguments as they are stored.

    Guarantee: pure; `live_arguments`, or ``argumentsText`` where it is noted, gives them back.

    Args:
        arguments: a text, JSON or not, an object, or None.

    Returns:
        The object for upstream's reader, and what our extension notes: ``argumentsForm``, ``argumentsText``, or nothing
        for the spaced form.
    """
    if arguments is None:
        return {}, {"argumentsText": None}
    if not isinstance(arguments, str):
        return arguments, {"argumentsForm": OBJECT}
    try:
        # what follows an object makes the text another than the dumped one
        value: Any = _PARSE(arguments)[0] if arguments.startswith("{") else json.loads(arguments)
        if not isinstance(value, dict):
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
    """Read arguments of which no text is noted. Guarantee: pure.

    Args:
        stored: what stands where upstream's reader looks.
        form: as `stored_arguments` noted it, or None.

    Returns:
        The text, or what is stored when it is no object to be written as text.

    Raises:
        TypeError, ValueError: there is nothing that JSON text can be made of.
    """
    if form == OBJECT or isinstance(stored, str):
        return stored
    return (_COMPACT_TEXT if form == COMPACT else _SPACED_TEXT)(stored or {})
