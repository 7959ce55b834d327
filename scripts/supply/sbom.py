"""Completes a list of what a venv contains: each component gets the hashes that the lock allows it.

Source: CycloneDX 1.6, whose strict schema the result is held against.
"""

import json
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from locks import read_lock
from packaging.utils import canonicalize_name


def main(listed: Path, lock: Path) -> None:
    """Read the SBOM in ``listed``, hold it against ``lock``, and print it with the lock's hashes."""
    bom = json.loads(listed.read_text())
    pins = {(pin.name, pin.version): pin for pin in read_lock(lock) if pin.is_for_here}
    components = {(canonicalize_name(one["name"]), one["version"]): one for one in bom["components"]}
    if components.keys() != pins.keys():
        sys.exit(f"what is installed is not what {lock} names: {sorted(components.keys() ^ pins.keys())}")
    for key, component in components.items():
        component.setdefault("externalReferences", []).append(
            {
                "type": "distribution",
                "url": "https://pypi.org/project/{}/{}/#files".format(*key),
                "comment": "the files that may be installed, one hash each",
                "hashes": [{"alg": "SHA-256", "content": one} for one in pins[key].hashes],
            }
        )
    text = json.dumps(bom, indent=2, sort_keys=True)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error:
        sys.exit(f"not valid CycloneDX 1.6: {error}")
    print(text)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
