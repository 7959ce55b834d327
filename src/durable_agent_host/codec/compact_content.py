"""The compact form of contents: omits what can be rebuilt exactly.

Theory of operation. A content is stored as the fields that upstream has a name for; its further fields are under our
``extensionData`` in the full form. In the compact form, the entry's table of parts holds these instead, shortened by
the rules of the content's ``$type``, which `_table_of` lists. Each `_Rule` defines what is omitted and how it is
restored; the writer applies the rules in order, the reader in reverse. What depends on the provider comes from its
`ItemForms`.

A `CompactContents` works on JSON (`pack`, `unpack`) and, by the same rules, on live contents (`encode`, `decode`).
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content

from durable_agent_host.codec.arguments import COMPACT
from durable_agent_host.codec.content import (
    CONTENT_CODECS,
    OPAQUE,
    STORED,
    decode_content,
    decode_fields,
    encode_content,
)
from durable_agent_host.codec.extension import set_extension, take_extension
from durable_agent_host.codec.fields import dump_value, fields_of
from durable_agent_host.codec.item_forms import ItemForms, item_forms
from durable_agent_host.model.provider_item import STAMP

ITEM: Final = "item"
"""Key of a part: the provider's item stamp; 1 when the content has all of it, its id when only that is missing."""
SAME_AS_CALL: Final = "call"
"""Key of a result's part: 1 when its id and properties are its call's."""
_CALL: Final = "functionCall"
_RESULT: Final = "functionResult"
_PROPERTIES: Final = "additional_properties"

Json = dict[str, Any]
Calls = dict[Any, tuple[Any, Any]]
"""Call id → the id and the properties that its result shares with the call, or `_MISSING`."""
_MISSING: Final = object()
_DICT: Final[Any] = dict


_Step = Callable[[Json, Mapping[str, Any], Calls], None]


class _Rule(NamedTuple):
    """What a part omits, and how it is restored.

    Attributes:
        shorten: reduces the fields of a content to its part; values are replaced, not changed.
        restore: the inverse.
    """

    shorten: _Step
    restore: _Step


class CompactContents:
    """The contents of one entry, in order: results are stored relative to their calls.

    Raises:
        RegistrationError: no provider's forms are registered.
    """

    def __init__(self) -> None:
        self._rows, self._others, self._new_usual_properties, self._usual_properties = _table_of(item_forms())
        self._calls: Calls = {}

    def encode(self, content: Content) -> tuple[Json, Any]:
        """Encode a live content.

        Guarantee: the same as `pack` of `encode_content`; shares nothing with the content.

        Returns:
            The content without our extension, and its part or None.

        Raises:
            CorruptStateError: a field holds a value that JSON cannot represent.
            TypeError, ValueError, KeyError: it has no compact form; its entry is then kept in full.
        """
        codec, properties = CONTENT_CODECS.get(content.type), content.additional_properties
        if codec is None or OPAQUE in properties or STORED in properties:
            return self.pack(cast("Json", encode_content(content)))
        if codec.is_whole:
            return codec.encode(fields_of(content))[0], None
        wire, rest = codec.encode(fields_of(content, with_properties=False))
        if properties:
            if not rest and properties == self._usual_properties and wire["$type"] != _CALL:
                return wire, 0
            rest[_PROPERTIES] = dump_value(properties, f"{content.type}.{_PROPERTIES}")
        return wire, self._shorten(wire, rest)

    def decode(self, wire: Mapping[str, Any], part: Any) -> Content:
        """Decode a live content.

        Guarantee: the same as `decode_content` of `unpack`; shares nothing with the arguments.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: the part does not belong to this content.
        """
        if "extensionData" not in wire:
            if part == 0 and wire.get("$type") != _CALL:
                content = decode_fields(wire, {}, self._new_usual_properties())
            else:
                content = decode_fields(wire, self._restore(wire, part))
            if content is not None:
                return content
        return decode_content(self.unpack(wire, part))

    def pack(self, content: Mapping[str, Any]) -> tuple[Json, Any]:
        """Convert a content from full to compact form.

        Guarantee: `unpack` restores the content exactly; it is not changed.

        Returns:
            The content without our extension, and its part; the unchanged content and None where a rule is not exact.

        Raises:
            TypeError, ValueError, KeyError: a call for which a rule is not exact; its entry is then kept in full.
        """
        short = dict(content)
        part = self._shorten(short, dict(take_extension(short)))
        if is_same_json(self.unpack(short, part), content):
            return short, part
        if content.get("$type") == _CALL:
            raise ValueError("a call without compact form")
        return dict(content), None

    def unpack(self, content: Mapping[str, Any], part: Any) -> Json:
        """Convert a content to full form. Guarantee: the inverse of `pack`; shares values with the arguments.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: the part does not belong to this content.
        """
        return _extended(content, self._restore(content, part))

    def _shorten(self, wire: Mapping[str, Any], rest: Json) -> Any:
        wire_type = wire.get("$type")
        if wire_type != _CALL:
            if not rest:
                return None
            if len(rest) == 1 and rest.get(_PROPERTIES) == self._usual_properties:
                return 0
        for shorten in (self._rows.get(wire_type) or self._others).shorten:
            shorten(rest, wire, self._calls)
        return rest or None

    def _restore(self, wire: Mapping[str, Any], part: Any) -> Json:
        wire_type = wire.get("$type")
        if wire_type == _CALL:
            part = part or {}
        elif part is None:
            return {}
        elif part == 0:
            return {_PROPERTIES: self._usual_properties}
        row = self._rows.get(wire_type) or self._others
        rest = {**row.usual, **part}
        for restore in row.restore:
            restore(rest, wire, self._calls)
        return rest


def _extended(content: Mapping[str, Any], rest: Json) -> Json:
    if not rest:
        return cast("Json", content)
    full = dict(content)
    set_extension(full, rest)
    return full


class _Row(NamedTuple):
    """What the parts of one ``$type`` omit: fields with the usual value, and what the rules say."""

    usual: Json
    shorten: tuple[_Step, ...]
    restore: tuple[_Step, ...]


def _row(*rules: _Rule, usual: Json | None = None) -> _Row:
    return _Row(usual or {}, tuple(rule.shorten for rule in rules), tuple(rule.restore for rule in reversed(rules)))


class _Table(NamedTuple):
    rows: dict[Any, _Row]
    others: _Row
    new_usual_properties: Callable[[], Json]
    usual_properties: Json


@cache
def _table_of(forms: ItemForms) -> _Table:
    """Return the rules by ``$type``, in the order in which the writer applies them."""

    def properties(wire_type: str) -> _Rule:
        rule = _Properties(forms, wire_type)
        return _Rule(rule.shorten, rule.restore)

    note_call = _Rule(_note_call, _note_call)
    usual_form = _Rule(_leave_out_usual_form, _put_back_usual_form)
    text_item = _Rule(_leave_out_text_item, _put_back_text_item)
    identity = _Rule(_leave_out_identity, _put_back_identity)
    rows = {wire_type: _row(properties(wire_type)) for wire_type in forms.contents}
    rows[_CALL] = _row(note_call, properties(_CALL), usual_form, usual={"hosted": False, "argumentsForm": COMPACT})
    rows[_RESULT] = _row(text_item, identity, properties(_RESULT))

    def new_usual_properties() -> Json:
        return {forms.provider: forms.new_usual_block(), **forms.new_usual_block()}

    return _Table(rows, _row(properties("")), new_usual_properties, new_usual_properties())


def _note_call(fields: Json, wire: Mapping[str, Any], calls: Calls) -> None:
    """Record what a call's result shares with it: its id, and its properties except the stamp of the call's item."""
    properties = fields.get(_PROPERTIES)
    if properties and STAMP in properties:
        properties = {name: value for name, value in properties.items() if name != STAMP}
    calls[wire["callId"]] = fields.get("id", _MISSING), properties or _MISSING


def _leave_out_identity(fields: Json, wire: Mapping[str, Any], calls: Calls) -> None:
    call_id, properties = calls.get(wire["callId"], (_MISSING, _MISSING))
    if call_id is properties:
        return  # both are missing
    if is_same_json(fields.get("id", _MISSING), call_id) and is_same_json(
        fields.get(_PROPERTIES, _MISSING), properties
    ):
        fields.pop("id", None)
        fields.pop(_PROPERTIES, None)
        fields[SAME_AS_CALL] = 1


def _put_back_identity(fields: Json, wire: Mapping[str, Any], calls: Calls) -> None:
    if fields.pop(SAME_AS_CALL, None):
        call_id, properties = calls[wire["callId"]]
        if call_id is not _MISSING:
            fields["id"] = call_id
        if properties is not _MISSING:
            fields[_PROPERTIES] = properties


def _leave_out_text_item(fields: Json, wire: Mapping[str, Any], _: Calls) -> None:
    """Omit the items of a result when they are one text equal to its result."""
    items = fields.get("items")
    if type(items) is int:
        raise ValueError("items that look like the mark of the usual items")
    if items and type(text := wire.get("result")) is str and items == [{"type": "text", "text": text}]:
        fields["items"] = 1


def _put_back_text_item(fields: Json, wire: Mapping[str, Any], _: Calls) -> None:
    if fields.get("items") == 1:
        fields["items"] = [{"type": "text", "text": wire["result"]}]


def _leave_out_usual_form(fields: Json, _: Mapping[str, Any], __: Calls) -> None:
    """Omit the usual form of arguments, and that the framework runs the call; None for no value."""
    hosted, form = fields.pop("hosted", None), fields.pop("argumentsForm", None)
    if hosted is not False:
        fields["hosted"] = hosted
    if form != COMPACT:
        fields["argumentsForm"] = form
        if "argumentsText" in fields:
            fields["argumentsText"] = fields.pop("argumentsText")  # stays last


def _put_back_usual_form(fields: Json, _: Mapping[str, Any], __: Calls) -> None:
    if fields["hosted"] is None:
        del fields["hosted"]
    if fields["argumentsForm"] is None:
        del fields["argumentsForm"]


class _Properties:
    """What the provider's client writes twice: its block, copied beside it, and the item's id, also in its stamp."""

    def __init__(self, forms: ItemForms, wire_type: str) -> None:
        form = forms.form_of(wire_type)
        self._provider, self._item_id, self._usual_block = forms.provider, forms.item_id, forms.new_usual_block()
        self._beside, self._item_type, self._id_field = tuple(form.beside.items()), form.item_type, form.id_field
        self._name_beside = form.beside.get

    def shorten(self, fields: Json, _: Mapping[str, Any], __: Calls) -> None:
        """Remove the stamp and the block from the properties."""
        others: Any = fields.get(_PROPERTIES)
        if type(others) is not _DICT or not others:
            return
        del fields[_PROPERTIES]
        if type(stamp := others.get(STAMP)) is _DICT and ITEM not in fields:
            fields[ITEM] = self._short_stamp(stamp, fields, others)
            others = {name: value for name, value in others.items() if name != STAMP}
        block = others.get(self._provider)
        if type(block) is _DICT and block and self._provider not in fields:
            rest = self._without_copies(others, block)
            if rest is not None:
                fields[self._provider] = block if block != self._usual_block else 0
                others = rest
        if others:
            fields[_PROPERTIES] = others

    def restore(self, fields: Json, _: Mapping[str, Any], __: Calls) -> None:
        """Restore them."""
        properties: Any = fields.pop(_PROPERTIES, None)
        if self._provider in fields and (block := fields.pop(self._provider)) is not None:
            others, block = properties, block or self._usual_block
            properties = {self._provider: block, **block}
            for name, beside in self._beside:
                if name in block:
                    properties[beside] = properties.pop(name)
            if others:
                properties.update(others)
        if ITEM in fields and (stamp := fields.pop(ITEM)) is not None:
            properties = properties or {}
            properties = {**properties, STAMP: self._full_stamp(stamp, fields, properties)}
        if properties is not None:
            fields[_PROPERTIES] = properties

    def _without_copies(self, properties: Json, block: Json) -> Json | None:
        """Omit the block and the copies of its contents; None when something in it has no copy."""
        others = properties.copy()
        del others[self._provider]
        for name, value in block.items():
            copy = others.pop(self._name_beside(name, name), _MISSING)
            if copy is not value and not is_same_json(copy, value):
                return None
        return others

    def _short_stamp(self, stamp: Json, fields: Json, properties: Json) -> Any:
        item_id = stamp.get("id")
        if not isinstance(item_id, str) or self._item_type is None or stamp != self._usual_stamp(item_id):
            return stamp
        return 1 if item_id == self._own_item_id(fields, properties) else item_id

    def _full_stamp(self, stamp: Any, fields: Json, properties: Json) -> Any:
        if isinstance(stamp, dict):
            return cast("Any", stamp)
        if self._item_type is None:
            raise ValueError(f"the mark {stamp!r} for an item of the provider at a content that has none")
        return self._usual_stamp(self._own_item_id(fields, properties) if stamp == 1 else stamp)

    def _usual_stamp(self, item_id: Any) -> Json:
        return {"provider": self._provider, "type": self._item_type, "id": item_id}

    def _own_item_id(self, fields: Json, properties: Json) -> Any:
        if self._id_field is not None:
            return fields.get(self._id_field)
        block: Any = properties.get(self._provider)
        return cast("Json", block).get(self._item_id) if isinstance(block, dict) else None


def is_same_json(left: Any, right: Any) -> bool:
    """Compare JSON exactly: ``1``, ``1.0`` and ``true`` are three values. Guarantee: pure.

    Returns:
        Whether both are equal, ignoring the order of keys.
    """
    if left is right:
        return True
    kind: Any = left.__class__
    if kind is not type(right):
        return False
    if kind is dict:
        if len(left) != len(right):
            return False
        for name, value in left.items():
            other = right.get(name, _MISSING)
            if value is not other and not is_same_json(value, other):
                return False
        return True
    if kind is list:
        return len(left) == len(right) and all(map(is_same_json, left, right))
    return left == right and (kind is str or left != 0 or str(left) == str(right))
