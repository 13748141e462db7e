"""How a client proves its identity to a server: credentials, nkeys, and the secrets that they are made of."""
