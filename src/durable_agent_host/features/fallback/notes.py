"""The notes of fallbacks: which client answers, since which model call, and why."""

from typing import Final

from durable_agent_host.features.fallback.clients import Switch
from durable_agent_host.model.journal_entry import Note
from durable_agent_host.turn.note_view import NoteView

NAME: Final = "fallback"


def note_of_switch(switch: Switch, name: str, reason: str) -> Note:
    """Make the note of a switch.

    Args:
        switch: to another client.
        name: of the client's class.
        reason: a sentence; empty at the begin of a turn.
    """
    data = {"client": switch.client, "failed": switch.failed, "name": name, "reason": reason}
    return Note(NAME, switch.path, data)


def switch_of_note(note: Note) -> Switch:
    """Read a note."""
    return Switch(note.path, note.data["client"], note.data["failed"])


def show_switch(note: Note) -> NoteView:
    """Show a switch, and the client with the model calls that follow."""
    name = note.data["name"]
    step = {"kind": "fallback", "client": name, "reason": note.data["reason"] or None}
    return NoteView(step, {"client": name if note.data["client"] else None})
