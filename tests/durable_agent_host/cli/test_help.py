"""What ``--help`` says of each command."""

import re

import pytest

from durable_agent_host.cli.main import main


def read_help(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Ask a command for its help."""
    with pytest.raises(SystemExit) as exit_info:
        main([*command, "--help"])
    assert exit_info.value.code == 0
    return capsys.readouterr().out


def commands_in(text: str) -> list[str]:
    """Name the commands that a help lists."""
    return re.findall(r"^  ([\w-]+)", text.partition("\nCommands:\n")[2].partition("\n\n")[0], re.MULTILINE)


def test_every_command_names_itself(capsys: pytest.CaptureFixture[str]):
    """The usage of each command begins with the program and the command, and each option has its meaning."""
    pending = [(name,) for name in commands_in(read_help(capsys)) if name != "start"]
    seen = []
    while pending:
        command = pending.pop()
        text = read_help(capsys, *command)
        seen.append(" ".join(command))
        assert text.startswith(f"Usage: durable-agent-host {' '.join(command)} "), text
        assert re.match(r".*\n\n  \w", text), "the command says nothing"
        options = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (--[^ ]+)(?: \S+)*(?=\n  -|\Z)", options, re.MULTILINE) == [], "an option says nothing"
        pending += [(*command, name) for name in commands_in(text)]
    for name in ("chat", "sessions list", "sessions delete"):
        assert name in seen


@pytest.mark.parametrize(
    "command",
    [
        "sessions list --limit 2 Helper",
        "sessions fork Helper --at-turn t s1 --before",
        "sessions show Helper --limit 2 -- --s1",
        "chat Helper --session s1",
    ],
)
def test_options_are_accepted_in_any_position(capsys: pytest.CaptureFixture[str], command: str):
    """Options before, between and behind positional arguments are understood: only the host is missing."""
    with pytest.raises(SystemExit) as exit_info:
        main([*command.split()[:2], "--url", "http://127.0.0.1:1", *command.split()[2:]])
    assert (exit_info.value.code, "no host answers" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("sessions fork Helper --before", "Missing argument 'SESSION'"),
        ("sessions verify Helper s1 s2", "unexpected extra argument (s2)"),
        ("sesions list", "Did you mean 'sessions'?"),
    ],
)
def test_what_is_missing_wrong_or_too_much_is_named(capsys: pytest.CaptureFixture[str], command: str, missing: str):
    """With options in between, too."""
    with pytest.raises(SystemExit) as exit_info:
        main(command.split())
    assert (exit_info.value.code, missing in capsys.readouterr().err) == (2, True)
