"""Auth callout: nats-server asks your service who may connect, and with which
permissions."""

import base64
import hashlib
import hmac
import json
import secrets
import time
from typing import Any

import jsclient
from jsclient import errors
from jsclient.auth.nkeys import KeyPair, KeyType, encode_seed, verify
from jsclient.services import Request, Service, ServiceConfig, add_service
from jsclient.testing import NatsServer

CONFIG = """
accounts {
  AUTH: { users: [ { user: callout, password: "callout secret" } ] }
  SHOP: { jetstream: enabled }
}
authorization {
  auth_callout { account: AUTH, auth_users: [ callout ], issuer: %s }
}
"""
LIFETIME = 3600  # seconds; then the client has to connect again
USERS: dict[str, Any] = {  # yours: a database, LDAP, an identity provider
    "sue": {"salt": b"1", "sub": ["orders.>", "_INBOX.>"], "pub": ["orders.>"]},
    "joe": {"salt": b"2", "sub": ["orders.>", "_INBOX.>"], "pub": ["_INBOX.>"]},
}


def digest(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=2**12, r=8, p=1)


for name, user in USERS.items():
    user["digest"] = digest(f"{name}'s password", user["salt"])


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(issuer: KeyPair, subject: str, kind: str, nats: Any, **claims: Any) -> str:
    """A JWT of NATS: version 2 claims, signed by an nkey."""
    body = {"iss": issuer.public, "sub": subject, "iat": int(time.time()), **claims}
    body |= {"jti": secrets.token_hex(16), "nats": {"type": kind, "version": 2, **nats}}
    head = b64(b'{"typ":"JWT","alg":"ed25519-nkey"}')
    text = f"{head}.{b64(json.dumps(body).encode())}"
    return f"{text}.{b64(issuer.sign(text.encode()))}"


def checked(token: bytes) -> Any:
    """The claims of a request that a server has signed; ValueError for any other."""
    text, _, signature = token.rpartition(b".")
    claims = json.loads(base64.urlsafe_b64decode(text.split(b".")[1] + b"=="))
    server = claims["nats"]["server_id"]["id"]
    if claims["aud"] != "nats-authorization-request" or claims["iss"] != server:
        raise ValueError("not the request of a server")
    if not verify(server, text, base64.urlsafe_b64decode(signature + b"==")):
        raise ValueError("the signature is wrong")
    return claims["nats"]


def user_jwt(issuer: KeyPair, asked: dict[str, Any]) -> str:
    """What the client may do; PermissionError if it may not connect."""
    given = asked["connect_opts"]
    name, password = given.get("user", ""), given.get("pass", "")
    user = USERS.get(name, {"salt": b"", "digest": b""})  # unknown: as slow as known
    if not hmac.compare_digest(digest(password, user["salt"]), user["digest"]):
        raise PermissionError("user or password is wrong")
    allowed = {way: {"allow": user[way]} for way in ("pub", "sub")}
    limits = {"subs": -1, "data": -1, "payload": -1}
    expires = int(time.time()) + LIFETIME
    more = {"aud": "SHOP", "name": name, "exp": expires}  # aud: the account
    return signed(issuer, asked["user_nkey"], "user", {**allowed, **limits}, **more)


def serve(nc: jsclient.Connection, issuer: KeyPair) -> Service:
    """The service. Start it in several processes: they share the requests."""

    def answer(request: Request) -> None:
        asked = checked(request.data)  # an exception is an answer, too: refused
        try:
            said = {"jwt": user_jwt(issuer, asked)}
        except PermissionError as error:
            said = {"error": str(error)}  # goes to the log of the server
        subject, server = asked["user_nkey"], asked["server_id"]["id"]
        kind = "authorization_response"
        request.respond(signed(issuer, subject, kind, said, aud=server))

    service = add_service(nc, ServiceConfig(name="auth", version="1.0.0"))
    service.add_endpoint("auth", answer, subject="$SYS.REQ.USER.AUTH", workers=4)
    nc.flush()
    return service


if __name__ == "__main__":
    # The seed of an account nkey. Keep it as you keep a password; make it once.
    issuer = KeyPair(encode_seed(KeyType.ACCOUNT, secrets.token_bytes(32)))
    with (
        NatsServer(CONFIG % issuer.public) as server,
        jsclient.connect(server.url, user="callout", password="callout secret") as nc,
        serve(nc, issuer),
    ):
        sue = jsclient.connect(server.url, user="sue", password="sue's password")
        joe = jsclient.connect(server.url, user="joe", password="joe's password")
        with sue, joe, joe.subscribe("orders.new") as orders:
            joe.flush()
            sue.publish("orders.new", b"2 apples")
            print("joe reads", orders.next(timeout=5).data)
            try:
                joe.request("orders.new", b"3 apples", timeout=5)
            except errors.PermissionViolation:
                print("joe has no permission to publish")
        try:
            jsclient.connect(server.url, user="sue", password="guessed")
        except errors.AuthError as error:
            print("refused:", type(error).__name__)
