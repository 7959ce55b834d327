"""``python -m tests.stand_ins``: the command line of the practice model, and ``--recordings DIR``."""

import sys
from pathlib import Path

from practice_model.__main__ import argument_parser, serve
from tests.stand_ins.server import StandIns


def main() -> int:
    """Run the stand-ins until they are stopped; return the exit status."""
    parser = argument_parser("python -m tests.stand_ins")
    parser.add_argument("--recordings", type=Path, help="folder of recorded traffic to replay")
    arguments = parser.parse_args()
    if arguments.recordings and not arguments.recordings.is_dir():
        print(f"Recordings folder {str(arguments.recordings)!r} does not exist: pass another DIR.", file=sys.stderr)
        return 1
    return serve(arguments, lambda: StandIns(arguments.recordings))


if __name__ == "__main__":
    sys.exit(main())
