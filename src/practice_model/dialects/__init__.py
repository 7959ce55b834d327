"""The wire formats of the APIs that the server implements, one folder each. All functions are pure."""
