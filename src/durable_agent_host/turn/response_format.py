"""The response format that a client requests: a JSON schema, and checks of answers against it. Fetches nothing.

Clients write schemas, and some never finish: a backtracking pattern, references that double at each level, a large
schema for each item of a large answer. So the steps of a check are counted where other work shares the process, and the
check is left to another process when there are many, or when the time of a step cannot be predicted
(`durable_agent_host.features.response_format.worker`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from jsonschema import SchemaError, exceptions, validators
from jsonschema.exceptions import UnknownType
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from durable_agent_host.codec.strict_json import SURROGATE, is_nested_too_deeply, parse_strict
from durable_agent_host.errors import InvalidAnswerError, RequestError

MAX_SCHEMA_CHARACTERS: Final = 64 * 1024
"""The longest ``response_format``, as JSON."""

MAX_SCHEMA_OBJECTS: Final = 2_000
"""Maximum objects in a schema: checking each against the rules of JSON Schema takes half a millisecond."""

STEPS_AT_ONCE: Final = 50_000
"""Maximum keyword checks against values in a process that has other things to do."""

_OBJECTS_AT_ONCE: Final = 200
"""Maximum objects of a schema that is checked in a process that has other things to do."""
_UNBOUNDED: Final = frozenset(
    {"pattern", "patternProperties", "uniqueItems", "$schema", "$id", "$anchor", "$dynamicAnchor"}
)
"""Keywords that may take for ever in one step or that search the whole schema for each reference, and the one that
changes the meaning of all others."""


class TooMuchToCheckError(Exception):
    """An answer cannot be checked against its format in a few steps."""


def is_same_json(left: Any, right: Any) -> bool:
    """Compare JSON by value: ``1`` and ``1.0`` are the same number, ``true`` is none."""
    return cast("Any", validators.Draft202012Validator({"const": left})).is_valid(right)


def schema_of(response_format: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema in a response format.

    Returns:
        The schema, or None when any JSON will do.
    """
    if response_format.get("type") == "json_object":
        return None
    schema: Any = response_format
    if response_format.get("type") == "json_schema":
        schema = cast("dict[str, Any]", response_format.get("json_schema", response_format)).get("schema")
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else None


def check_response_format(response_format: Mapping[str, Any]) -> None:
    """Refuse a response format with an invalid schema or reference, before the model is called.

    Raises:
        RequestError: the schema breaks the rules of JSON Schema, which says where, it cannot be sent to a model, or a
            reference leads to no schema within it, which is named.
    """
    _check_form(response_format)
    schema = schema_of(response_format)
    if schema is None:
        return
    if sum(1 for _ in _objects(schema)) > MAX_SCHEMA_OBJECTS:
        raise _unusable(f"it has more than {MAX_SCHEMA_OBJECTS} objects")
    validator_class: Any = validator_for(schema)
    try:
        validator_class.check_schema(schema)
        _check_references(schema, validator_class)
    except SchemaError as error:
        raise _unusable(error.message) from None
    except RecursionError:
        raise _unusable("it is nested too deeply") from None
    except (ValueError, TypeError, AttributeError) as error:  # no URI, or a form of an old dialect
        raise _unusable(f"its ids and references cannot be read: {error}") from None


def _check_form(response_format: Mapping[str, Any]) -> None:
    if is_nested_too_deeply(response_format):
        raise _unusable("it is nested too deeply")
    text = json.dumps(response_format, ensure_ascii=False)
    if SURROGATE.search(text):
        raise _unusable("it has half of a surrogate pair, which is no character")
    if response_format.get("type") == "json_schema":
        section: Any = response_format.get("json_schema", response_format)
        if not isinstance(section, dict) or not isinstance(cast("dict[str, Any]", section).get("schema"), dict):
            raise _unusable("a format of type 'json_schema' has its schema as an object in json_schema.schema")
    if len(text) > MAX_SCHEMA_CHARACTERS:
        raise _unusable(f"it has more than {MAX_SCHEMA_CHARACTERS} characters")


def _check_references(schema: dict[str, Any], validator_class: Any) -> None:
    """Follow all references as a check of an answer does, and check what they lead to."""
    specification: Any = specification_with(validator_class.META_SCHEMA["$schema"])
    root = specification.create_resource(schema)
    registry = cast("Any", REGISTRY).with_resource(root.id() or "", root)
    with suppress(TypeError, AttributeError):  # lists as values of draft 7's dependencies
        registry = registry.crawl()  # once, not for each anchor
    keywords = [name for name in ("$ref", "$dynamicRef") if name in validator_class.VALIDATORS]
    checked_ids: set[int] = set()
    parts: list[tuple[Any, Any]] = [(root, registry.resolver(root.id() or ""))]
    references: list[tuple[Any, Any]] = []
    remaining_objects = MAX_SCHEMA_OBJECTS
    while parts or references:
        if parts:
            part, resolver = parts.pop()
            if id(part.contents) in checked_ids:
                continue
            checked_ids.add(id(part.contents))
            inner = (subresource for subresource in part.subresources() if isinstance(subresource.contents, dict))
            parts += [(subresource, resolver.in_subresource(subresource)) for subresource in inner]
            references += [(part.contents[name], resolver) for name in keywords if name in part.contents]
        else:
            target, resolver = _resolve_reference(*references.pop())
            if isinstance(target, bool) or id(target) in checked_ids:
                continue
            remaining_objects -= sum(1 for _ in _objects(target))
            if remaining_objects < 0:
                raise _unusable(f"its references lead to more than {MAX_SCHEMA_OBJECTS} objects")
            validator_class.check_schema(target)
            parts.append((specification.create_resource(target), resolver))


def _resolve_reference(reference: Any, resolver: Any) -> tuple[Any, Any]:
    """Return the schema to which a reference leads, and the resolver of its references."""
    try:
        target = resolver.lookup(reference)
    except (Unresolvable, LookupError, ValueError, TypeError, AttributeError):  # a pointer may lead into any value
        target = None
    if target is None or type(target.contents) not in {dict, bool}:
        reference_text = json.dumps(reference, ensure_ascii=False)[:200]
        raise _unusable(
            f"its reference {reference_text} leads to no schema within it, and no other document is fetched"
        )
    return target.contents, target.resolver


_FENCE: Final = re.compile(r"```[A-Za-z0-9]*\s(.*)```", re.DOTALL)


def parse_answer(text: str) -> Any:
    """Parse the JSON of an answer: all of it, or else what is between fences, or the last of its messages.

    Raises:
        ValueError, RecursionError: it is not JSON.
    """
    try:
        return parse_strict(text)
    except ValueError:
        fence = _FENCE.search(text)
        for part in (fence[1] if fence is not None else "", text.rpartition("\n\n")[2]):
            with suppress(ValueError):
                return parse_strict(part)
        raise


def validate_response(text: str, response_format: Mapping[str, Any], *, max_steps: int | None = None) -> None:
    """Check an answer against the requested format.

    Raises:
        TooMuchToCheckError: there are more, or some whose time cannot be predicted.
        InvalidAnswerError: the answer is not JSON, or does not match the schema; says where.
        RequestError: the schema is invalid, or refers to another document; nothing is fetched.
    """
    try:
        value = parse_answer(text)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswerError(f"the model's answer is not JSON, as response_format asks: {error}") from None
    schema = schema_of(response_format)
    if schema is None:
        return
    if max_steps is not None:
        parts = list(_objects(schema))
        has_old_ids = any(isinstance(part.get("id"), str) for part in parts)
        if len(parts) > _OBJECTS_AT_ONCE or has_old_ids or any(_UNBOUNDED.intersection(part) for part in parts):
            raise TooMuchToCheckError
    try:
        validator_class = validator_for(schema)
        validator_class.check_schema(schema)
        if max_steps is not None:
            validator_class = _limit_steps(validator_class, max_steps)
        validator: Any = cast("Any", validator_class)(schema, registry=cast("Any", Registry)())
        violation = cast("Any", exceptions).best_match(validator.iter_errors(value))
    except (SchemaError, UnknownType, Unresolvable) as error:
        raise _unusable(str(error).partition("\n")[0]) from None
    except RecursionError:
        raise InvalidAnswerError("the model's answer, or response_format, is nested too deeply") from None
    if violation is not None:
        raise InvalidAnswerError(
            f"the model's answer does not fit response_format: {violation.message} at {violation.json_path}"
        )


def _objects(schema: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Iterate over all objects of a schema; a dialect named at its top is ignored."""
    pending_values: list[Any] = [{name: value for name, value in schema.items() if name != "$schema"}]
    while pending_values:
        found = pending_values.pop()
        if isinstance(found, dict):
            part = cast("dict[str, Any]", found)
            yield part
            pending_values += part.values()
        elif isinstance(found, list):
            pending_values += cast("list[Any]", found)


def _limit_steps(validator_class: Any, max_steps: int) -> Any:
    """Make a validator that gives up after a number of keywords."""
    remaining_steps = iter(range(max_steps))

    def with_limit(validate_keyword: Callable[..., Any]) -> Callable[..., Any]:
        def hold_counted(*arguments: Any) -> Any:
            if next(remaining_steps, None) is None:
                raise TooMuchToCheckError
            return validate_keyword(*arguments)

        return hold_counted

    keywords = cast("Mapping[str, Callable[..., Any]]", validator_class.VALIDATORS)
    return cast("Any", validators).extend(validator_class, {name: with_limit(hold) for name, hold in keywords.items()})


def _unusable(reason: str) -> RequestError:
    return RequestError(f"response_format is not a usable JSON schema: {reason}")
