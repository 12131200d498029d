"""The wire: bytes to requests, results to bytes."""
