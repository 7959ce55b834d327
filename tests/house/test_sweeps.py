"""What sets the sweeps is documented, and read in one place."""

import re

from tests.house.source import ROOT, tracked_files
from tests.sweeps import SWITCHES


def test_what_sets_the_sweeps_is_documented():
    """CONTRIBUTING.md has a row for each variable, and its rows name tests that exist."""
    rows = [line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("|")]
    documented_switches = {found[1] for row in rows if (found := re.match(r"\| `([A-Z]+)(?:=\w+)?` \|", row))}
    assert documented_switches == set(SWITCHES)
    tests = {name for row in rows for name in re.findall(r"`(tests/[\w/]+\.py)`", row)}
    assert not [name for name in tests if not (ROOT / name).is_file()]


def test_sweep_settings_are_read_in_one_module():
    """No other file of the tests reads the variables, so that each means one thing."""
    switch_pattern = re.compile(rf"environ(?:\.get\(|\[)\"(?:{'|'.join(SWITCHES)})\"")
    files = [name for name in tracked_files() if name.startswith("tests/") and name.endswith(".py")]
    assert [name for name in files if switch_pattern.search((ROOT / name).read_text())] == ["tests/sweeps.py"]
