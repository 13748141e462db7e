"""The ways for a client to prove its identity to a server: credentials, nkeys, and the secrets in them."""
