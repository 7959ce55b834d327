"""Turn logs in Redis Streams."""
