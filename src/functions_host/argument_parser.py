"""Command-line arguments with errors of one sentence."""

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

_STATUS = 2
_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)")


class Arguments(argparse.ArgumentParser):
    """A parser whose errors are one line: what is unknown, what may have been meant, and where help is."""

    def reject_option(self, argument: str) -> NoReturn:
        """Report an unknown option and exit with status 2."""
        name = argument.partition("=")[0]
        options = [text for action in self._actions for text in action.option_strings]
        self.error(f"there is no option {name!r}{_suggest(name, options)}")

    def error(self, message: str) -> NoReturn:
        """Report an error and exit with status 2."""
        if found := _CHOICE.fullmatch(message):
            choices = re.findall(r"[\w-]+", found[3])
            message = f"there is no {found[1]} {found[2]!r}{_suggest(found[2], choices)}, only {', '.join(choices)}"
        self.exit(_STATUS, f"Error: {message[0].upper()}{message[1:]}; see {self.prog} --help.\n")


def _suggest(word: str, candidates: Iterable[str]) -> str:
    return "".join(f" (did you mean {close}?)" for close in difflib.get_close_matches(word, candidates, n=1))
