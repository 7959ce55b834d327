"""stub"""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from practice_model.answer import HttpError

@dataclass(frozen=True)
class Rules:
    """Stub."""

def conversation_id(body: Mapping[str, Any]) -> str | None:
    given = body.get("conversation")
    return given.get("id") if isinstance(given, dict) else given

def check_request(body, knowledge, rules, *, now):
    return None
