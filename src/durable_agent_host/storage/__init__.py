"""What stores of different things share: SQLite files, the app's storage account, retries."""
