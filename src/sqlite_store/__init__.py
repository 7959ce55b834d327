"""SQLite files of both hosts: connections, checkpoints, erasure, and room on the disk that is kept for deletions."""
