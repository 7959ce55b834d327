"""Reports turns to the app's operators: traces, metrics and log lines."""
