"""Sweeps: tests of more cases than each change has time for.

Per change a sweep plays a small number of cases, drawn anew each time from the seed of the run, which the header and
the summary of pytest name. ``./scripts/test --long`` plays the long counts. CONTRIBUTING.md has the table of the
variables that set them one by one.
"""

import os
import random

SWITCHES = ("SWEEP", "SEED", "KILLS", "RUNS", "EXAMPLES")
"""The environment variables that sweeps take."""
_SETTINGS = {name: os.environ[name] for name in SWITCHES if os.environ.get(name)}
IS_LONG = _SETTINGS.get("SWEEP") == "full"
SEED = int(_SETTINGS.get("SEED") or random.randrange(2**32))
os.environ["SEED"] = str(SEED)  # workers of pytest-xdist start from this environment, and have to draw the same


def count(name: str, *, short: int, long: int) -> int:
    """Give how many cases a sweep plays.

    Args:
        name: the variable that sets it, one of `SWITCHES`.
        short: per change.
        long: of ``./scripts/test --long``.
    """
    assert name in SWITCHES, name
    return int(_SETTINGS.get(name) or (long if IS_LONG else short))


def chooser(name: str) -> random.Random:
    """Make what a sweep draws with; the same for a seed and a sweep, whatever else runs."""
    return random.Random(f"{SEED} {name}")


def repetition() -> str:
    """Give the variables that repeat this run's draws."""
    return " ".join(f"{name}={value}" for name, value in (_SETTINGS | {"SEED": str(SEED)}).items())
