"""What lives beneath a Connection: dialling, reading, sending, and who waits for what. Not part of the public API."""
