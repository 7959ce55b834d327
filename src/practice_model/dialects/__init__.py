"""The APIs that the server speaks, one folder each."""
