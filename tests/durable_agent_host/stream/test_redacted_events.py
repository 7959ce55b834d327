"""A redacted stream says what the redacted text says, however it was cut."""

from agent_framework import AgentResponseUpdate, Content

from durable_agent_host.redaction import redact_personal_data
from durable_agent_host.stream.live_events import LiveEvents
from durable_agent_host.stream.redacted_events import RedactedEvents
from durable_agent_host.turn.turn_redactor import Redactor
from tests.sweeps import chooser

SECRETS = (
    "4111 1111 1111 1111",
    "5555-5555-5555-4444",
    "someone@example.com",
    "sk-proj-abcdefghijkl",
    "Bearer abc.def-1234567890",
)
PEM = "-----BEGIN RSA PRIVATE KEY-----\nabc def\nghi 12\n-----END RSA PRIVATE KEY-----"


def test_a_redacted_stream_has_the_redacted_text():
    """No cut lets a piece of a secret through, no text is told again, and texts are told before their end."""
    drawn = chooser("redacted streams")
    redactor = Redactor(redact_personal_data)
    for _ in range(60):
        parts = [
            drawn.choice(["word", "12", "it's", "\n", "größer", *SECRETS, PEM]) for _ in range(drawn.randint(1, 90))
        ]
        text = " ".join(parts)
        events = RedactedEvents(LiveEvents(clean=redactor.text), redactor)
        sent_events, offset = [], 0
        while offset < len(text):
            piece = text[offset : offset + drawn.randint(1, 40)]
            offset += len(piece)
            update = AgentResponseUpdate(role="assistant", message_id="m", contents=[Content.from_text(piece)])
            sent_events += events.feed(update)
        early = len(sent_events)
        message = {"text": redactor.text(text), "citations": [], "files": []}
        sent_events += events.finish([message])
        assert sent_events[0] == ("message.started", {"index": 0})
        assert sent_events[-1] == ("message.completed", {"index": 0, **message})
        assert {event for event, _ in sent_events[1:-1]} <= {"message.delta"}
        assert "".join(data["text"] for _, data in sent_events[1:-1]) == redactor.text(text)
        assert early or len(text) < 1500
