"""The command line: what is wrong with it stands under the name that the user has called."""

import subprocess
import sys
from pathlib import Path

import pytest

INSTALLED = [str(Path(sys.executable).with_name("durable-agent-host"))]
MODULE = [sys.executable, "-m", "functions_host"]


def run_cli(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("program", "name"), [(INSTALLED, "durable-agent-host"), (MODULE, "functions_host")])
def test_the_usage_line_has_the_name_of_the_program(program: list[str], name: str):
    """Help is about the command that the user has typed."""
    done = run_cli(*program, "start", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {name} start [-h] [--app DIR]")


@pytest.mark.parametrize("program", [INSTALLED, MODULE])
def test_the_last_line_says_what_is_wrong(program: list[str]):
    """Below the usage; the status is 2."""
    done = run_cli(*program, "start", "--prot", "7071")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("error: unrecognized arguments: --prot 7071\n")


def test_a_misspelt_command_is_named():
    """The last line says what is wrong and what was probably meant, and the one before where help is."""
    done = run_cli(*INSTALLED, "sessions", "lsit")
    assert (done.returncode, done.stdout) == (2, "")
    message = "Error: No such command 'lsit'. Did you mean 'list'?"
    assert done.stderr.endswith(f"Try 'durable-agent-host sessions --help' for help.\n\n{message}\n")


def test_without_a_command_the_commands_are_listed():
    """The status is 2, and the output is empty."""
    done = run_cli(*INSTALLED)
    assert (done.returncode, done.stdout) == (2, "")
    assert "\n  sessions  " in done.stderr
