"""What a process leaves to be told, as the next one finds it."""

from pathlib import Path

from durable_agent_host.telemetry.outbox import Outbox


def test_what_a_dead_process_wrote_is_found(tmp_path: Path):
    """Turns, what counts them, what has been delivered, and the export that may not have arrived."""
    dead = Outbox(tmp_path)
    dead.write(["turn", "a", {"n": 1}], ["turn", "b", {"n": 2}], ["done", ["z"]])
    dead.write(["points", "metrics/0", ["a"], ["first"]], ["sent", "spans/0", ["a"]])
    name = _die(dead)
    with Outbox(tmp_path).leftovers() as left:
        assert left.told.turns == {"a": {"n": 1}, "b": {"n": 2}}
        assert (left.told.counted, left.told.sent, list(left.told.done)) == ({"a"}, {"spans/0": {"a"}}, ["z"])
        assert left.told.points == {f"{name}/metrics/0": ["first"]}
        left.remove()
    assert not (tmp_path / name).exists()


def test_an_export_that_arrived_is_not_sent_again(tmp_path: Path):
    """Its turns stay counted."""
    dead = Outbox(tmp_path)
    dead.write(["turn", "a", {}], ["points", "metrics/0", ["a"], []], ["sent", "metrics/0", ["a"]])
    _die(dead)
    with Outbox(tmp_path).leftovers() as left:
        assert (left.told.points, left.told.counted) == ({}, {"a"})


def test_a_file_whose_process_lives_is_left_alone(tmp_path: Path):
    """So is one that another process has taken over."""
    alive, other = Outbox(tmp_path), Outbox(tmp_path)
    alive.write(["turn", "a", {}])
    with other.leftovers() as left:
        assert left.told.turns == {}
    _die(alive)
    with other.leftovers() as left, Outbox(tmp_path).leftovers() as late:
        assert (list(left.told.turns), late.told.turns) == (["a"], {})


def test_a_torn_line_is_passed_over(tmp_path: Path):
    """The process died in the middle of it, before it told anything of that turn."""
    dead = Outbox(tmp_path)
    dead.write(["turn", "a", {}])
    name = _die(dead)
    with (tmp_path / name).open("a") as file:
        file.write('["turn","b",{"agent"')
    with Outbox(tmp_path).leftovers() as left:
        assert list(left.told.turns) == ["a"]


def test_a_file_is_rewritten_when_it_is_long(tmp_path: Path):
    """It has the lines that are given, and what comes after."""
    box = Outbox(tmp_path)
    while not box.is_long:
        box.write(["turn", "old", {"text": "x" * 10_000}])
    box.rewrite([["turn", "a", {}]])
    box.write(["turn", "b", {}])
    assert not box.is_long
    _die(box)
    with Outbox(tmp_path).leftovers() as left:
        assert list(left.told.turns) == ["a", "b"]


def _die(box: Outbox) -> str:
    """Let go of a file as the end of a process does; give its name."""
    box.close()
    return box.path.name
