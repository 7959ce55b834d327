"""What each service would say to a request that a hostile model has received, by the practice model's rules."""

from typing import Any

from practice_model.dialects.responses.transcript import Transcript
from practice_model.rules import anthropic_messages, chat_requests, gemini_contents, item_shapes, pairing


class _KnowsNothing:
    """A service that has issued nothing which a request could name."""

    def is_genuine_signature(self, value: str) -> bool:
        return bool(value)

    def find_thought(self, signature: str) -> str | None:
        del signature

    def find_thought_signatures(self, call_id: str) -> list[str]:
        del call_id
        return []

    def has_issued_type(self, kind: str) -> bool:
        del kind
        return False

    def container_error(self, container_id: str) -> str | None:
        del container_id


def find_violation(client: str, body: Any) -> Any:
    """Return the service's error for a request; None if it is accepted."""
    match client:
        case "Responses":
            items, transcript = body["input"], Transcript()
            pairing_error = pairing.check_calls(items, transcript, is_strict=True)
            schema_error = item_shapes.check_item_schema(items, is_strict=False)
            return schema_error or pairing_error or pairing.check_duplicates(items, transcript)
        case "Completions":
            return chat_requests.check_request(body)
        case "Claude":
            return anthropic_messages.check_request(body, _KnowsNothing())
        case _:
            return gemini_contents.check_request("m", body, bool, ())
