"""Who we are to a server: credentials, nkeys, and the secrets that they are made of."""
