"""Audits the locks with pip-audit, and tells apart: nothing known, findings, not checked.

pip-audit ends with 1 both for findings and when it cannot ask, and calls a run clean whose packages the service does
not know. Only its report says which packages were checked.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from locks import LOCKS, read_lock

ALLOW = "--allow-unchecked"


def main(*options: str) -> int:
    """Print findings and what was not checked. Returns the exit status: 1 for findings, 2 for packages not checked."""
    pins = sorted({(pin.name, pin.version) for lock in LOCKS for pin in read_lock(lock)})
    report, complaint = _ask(pins, [one for one in options if one != ALLOW])
    answers = {(one["name"], one["version"]): one["vulns"] for one in report if "vulns" in one}
    findings = {pin: answers[pin] for pin in pins if answers.get(pin)}
    for (name, version), vulnerabilities in findings.items():
        for one in vulnerabilities:
            fixed = ", ".join(one["fix_versions"]) or "no version yet"
            print(f"{name} {version}: {' '.join([one['id'], *one['aliases']])}, fixed in {fixed}")
    unchecked = [pin for pin in pins if pin not in answers]
    if unchecked:
        reasons = [complaint, *(one["skip_reason"] for one in report if "skip_reason" in one)]
        why = next(filter(None, reasons), "pip-audit does not say why")
        print(f"not checked: {len(unchecked)} of {len(pins)} packages, {unchecked[0][0]} first: {why}")
    print(f"{len(pins) - len(unchecked)} packages checked, {len(findings)} with findings")
    if findings:
        return 1
    return 2 if unchecked and ALLOW not in options else 0


def _ask(pins: list[tuple[str, str]], options: list[str]) -> tuple[list[dict[str, Any]], str]:
    """What pip-audit reports of each package, and its last words where it reports nothing."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder, "requirements.txt"), Path(folder, "report.json")
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in pins))
        asked = ["--disable-pip", "--no-deps", "-r", str(wanted)]
        answered = ["--format", "json", "--output", str(report), "--progress-spinner", "off"]
        command = [sys.executable, "-m", "pip_audit", *asked, *answered, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not report.exists() or not report.read_text():
            return [], (done.stderr.strip().splitlines() or [""])[-1]
        return json.loads(report.read_text())["dependencies"], ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
