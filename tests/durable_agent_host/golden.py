"""Stored documents of released versions: they have to be readable for ever."""

import json
from pathlib import Path
from typing import Any

WIRE = Path(__file__).resolve().parent.parent / "wire"


def golden(name: str) -> Any:
    """Read a golden document."""
    return json.loads((WIRE / f"{name}.json").read_text())
