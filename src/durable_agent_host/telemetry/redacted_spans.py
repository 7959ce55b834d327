"""Redacts conversations and addresses in spans.

The framework puts conversations into spans when the app sets ``ENABLE_SENSITIVE_DATA``, and instrumentations add the
URLs of requests, some of which contain a key.
"""

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.trace import Status

from durable_agent_host.redaction import without_secrets

SAYING: Final = frozenset(
    {
        *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
        *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.prompt", "gen_ai.completion"),
        *("exception.message", "exception.stacktrace"),
        *("url.full", "url.query", "url.path", "http.url", "http.target"),
    }
)
"""Attributes whose values are texts from others."""


def redact_span(span: Any) -> None:
    """Redact the attributes, events and status of a span that is about to end.

    The SDK (1.45) does not allow changes to such a span, so its fields are replaced.

    Args:
        span: of the SDK of OpenTelemetry.
    """
    for said in (span, *span.events):
        if changes := _changes(said.attributes):
            said._attributes = {**said.attributes, **changes}  # noqa: SLF001 - see above
    description = span.status.description
    if description and (clean := without_secrets(description)) != description:
        span._status = Status(span.status.status_code, clean)  # noqa: SLF001 - see above


def _changes(attributes: Mapping[str, Any] | None) -> dict[str, str]:
    said = {name: (attributes or {})[name] for name in SAYING & (attributes or {}).keys()}
    clean = {name: without_secrets(text) for name, text in said.items() if isinstance(text, str)}
    return {name: text for name, text in clean.items() if text != said[name]}
