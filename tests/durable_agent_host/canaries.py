"""What apps under test redact: secrets of a form that no text has by chance."""

import copy
import re

from agent_framework import Content

from durable_agent_host import redact_secrets
from durable_agent_host.redaction import MASK

_CANARY = re.compile(r"[\w.]+\.canary@example\.com|canary\.crash@example\.com|4111([ -]?)\d{4}\1\d{4}\1\d{4}")


def hide_canaries(content: Content) -> Content:
    """Mask addresses, cards and tokens."""
    content = redact_secrets(content)
    if not content.text or not _CANARY.search(content.text):
        return content
    hidden_content = copy.copy(content)
    hidden_content.text = _CANARY.sub(MASK, content.text)
    return hidden_content
