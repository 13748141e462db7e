"""Operator, account and user JWTs for tests: what `nsc` makes, in a few lines (ed25519-nkey, version 2 claims)."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import Any

from jsclient.auth.nkeys import KeyPair, KeyType, encode_seed

UNLIMITED = dict.fromkeys(["subs", "data", "payload"], -1)
ACCOUNT_LIMITS = {
    **UNLIMITED,
    **dict.fromkeys(["imports", "exports", "conn", "leaf", "mem_storage", "disk_storage", "streams", "consumer"], -1),
    "wildcards": True,
}


def new_seed(kind: KeyType = KeyType.USER) -> str:
    return encode_seed(kind, secrets.token_bytes(32))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def encode(issuer: KeyPair, subject: str, name: str, nats: dict[str, Any], **claims: Any) -> str:
    body = {"iat": int(time.time()), "iss": issuer.public, "sub": subject, "name": name, **claims, "nats": nats}
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    head = _base64(b'{"typ":"JWT","alg":"ed25519-nkey"}')
    text = f"{head}.{_base64(json.dumps(body).encode())}"
    return f"{text}.{_base64(issuer.sign(text.encode()))}"


class Operator:
    """An operator with one account; makes users of it and the configuration of a server that trusts it."""

    def __init__(self) -> None:
        self.key = KeyPair(new_seed(KeyType.OPERATOR))
        self.account = KeyPair(new_seed(KeyType.ACCOUNT))
        self.revoked: dict[str, int] = {}
        # Made once: with a new time of issue the server would call it another operator, which no reload can bring.
        self.jwt = encode(self.key, self.key.public, "O", {"type": "operator", "version": 2})

    def config(self, system: bool = False, **more: Any) -> str:
        """`system`: with a system account, from which a server asks an auth callout (it crashes without one)."""
        claims = {"type": "account", "version": 2, "limits": ACCOUNT_LIMITS}
        accounts = {
            self.account.public: encode(
                self.key, self.account.public, "A", {**claims, "revocations": self.revoked, **more}
            )
        }
        settings = f"operator: {self.jwt}\nresolver: MEMORY\n"
        if system:
            key = KeyPair(new_seed(KeyType.ACCOUNT)).public
            accounts[key] = encode(self.key, key, "SYS", claims)
            settings += f"system_account: {key}\n"
        preload = ", ".join(f"{key}: {account}" for key, account in accounts.items())
        return f"{settings}resolver_preload: {{ {preload} }}\n"

    def user_jwt(self, seed: str, name: str = "U", lifetime: int | None = None, **nats: Any) -> str:
        claims = {} if lifetime is None else {"exp": int(time.time()) + lifetime}
        body = {"type": "user", "version": 2, "pub": {}, "sub": {}, **UNLIMITED, **nats}
        return encode(self.account, KeyPair(seed).public, name, body, **claims)

    def creds(self, name: str = "U", lifetime: int | None = None, seed: str = "", **nats: Any) -> str:
        """The text of a `.creds` file for a new user (or the user of `seed`)."""
        seed = seed or new_seed()
        return creds_text(self.user_jwt(seed, name, lifetime, **nats), seed)


def creds_text(jwt: str, seed: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
