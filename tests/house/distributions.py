"""What is installed beside the tests, read from the metadata of the packages."""

from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed_by(requirement: str) -> dict[str, Distribution]:
    """The installed packages that a requirement leads to, itself included, by their canonical names."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    ahead = [Requirement(requirement)]
    while ahead:
        pending = ahead.pop()
        name = canonicalize_name(pending.name)
        for extra in {"", *pending.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found[name] = found.get(name) or distribution(name)
            for line in found[name].requires or ():
                dependency = Requirement(line)
                if dependency.marker is None or dependency.marker.evaluate({"extra": extra}):
                    ahead.append(dependency)
    return found
