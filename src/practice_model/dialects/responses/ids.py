"""Ids with the prefixes and lengths of the live API, from a seed and a counter.

Theory: an id is the prefix plus a digest of `seed:counter`. The same seed yields the same ids, so tests can compare
whole streams. A new seed per process keeps the ids of two runs apart: hosts store histories longer than this server
runs.
"""

import hashlib
from dataclasses import dataclass

BODY_LENGTHS: dict[str, int] = {
    "resp_": 50,
    "msg_": 50,
    "rs_": 50,
    "fc_": 50,
    "ci_": 50,
    "cntr_": 48,
    "cfile_": 32,
    "call_": 24,
    "conv_": 48,
    "cmp_": 50,
}
"""Characters after the prefix, as measured on recorded traffic; compaction items have not been recorded."""


@dataclass
class IdGenerator:
    """Generates ids that are unique within a run.

    Deterministic by seed and number of ids generated before.
    """

    seed: str
    count: int = 0

    def new(self, prefix: str) -> str:
        """Return the next id with this prefix, one of `BODY_LENGTHS`."""
        return self.new_like(prefix + "0" * BODY_LENGTHS[prefix])

    def new_like(self, example: str) -> str:
        """Return the next id with the prefix and the length of an example."""
        self.count += 1
        prefix, _, body = example.partition("_")
        digest = hashlib.sha256(f"{self.seed}:{self.count}".encode()).hexdigest()
        return f"{prefix}_{digest[: len(body)]}"
