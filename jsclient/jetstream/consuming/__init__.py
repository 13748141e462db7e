"""Every way to take messages from a consumer: fetch, iterate, consume, ordered, push, and reads that end."""
