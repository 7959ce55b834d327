"""Turn logs in append blobs of Azure Storage."""
