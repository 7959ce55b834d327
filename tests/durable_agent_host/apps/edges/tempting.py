"""A module of the app that nothing imports; whoever does leaves a trace."""

import os
from pathlib import Path

from pydantic import BaseModel

with Path(os.environ["LEDGER"]).open("a") as ledger:
    ledger.write("imported\n")


class Answer(BaseModel):
    """A shape of answers."""

    text: str
