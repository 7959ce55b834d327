"""Run the host: ``python -m functions_host start``."""

from functions_host.cli import exit_now, main

if __name__ == "__main__":
    exit_now(main())
