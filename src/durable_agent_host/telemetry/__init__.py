"""What is told of turns to those who run the app: traces, metrics and log lines."""
