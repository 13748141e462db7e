"""Credentials: turns the options of the user into the fields of CONNECT, again at every connect.

It reads files and calls functions only while a connection is being made, so rotated files, changed environment
variables and short-lived tokens work. Runs on the connector thread.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from jsclient import handlers
from jsclient.auth.nkeys import KeyPair, KeyType, decode_public
from jsclient.auth.secret import ENV_PREFIX, IS_SECRET, Secret, SecretSource, as_secret, read_secret
from jsclient.errors import AuthError, ConfigError

__all__ = ["AuthFields", "Authenticator", "Secret", "SecretSource", "as_secret", "parse_creds"]

log: logging.Logger = logging.getLogger("jsclient.auth")

MAX_CREDS_SIZE: Final = 1024 * 1024
CONNECT_NAMES: Final = ("user", "password", "auth_token", "nkey", "sig", "jwt")

SignatureCallback = Callable[[bytes], bytes | str]
"""Gets the nonce and returns the 64 raw bytes of the signature (or their base64url text)."""

_ARMOUR = re.compile(r"^\s*-{3,}\s*(BEGIN|END)\b(.*?)-{3,}\s*$", re.IGNORECASE)


@attrs.frozen
class AuthFields:
    """The credentials for CONNECT. `digest` distinguishes credentials without keeping them.

    Attributes:
        user: User name. The repr leaves it out, because a token may have been given as user.
        password: The password that belongs to `user`.
        auth_token: A token.
        nkey: The public nkey.
        sig: The signature of the server's nonce, base64url.
        jwt: The user JWT.
        digest: A hash of the credentials; equal credentials have equal hashes.
    """

    user: str | None = attrs.field(default=None, repr=False)
    password: str | None = attrs.field(default=None, repr=False)
    auth_token: str | None = attrs.field(default=None, repr=False)
    nkey: str | None = None
    sig: str | None = attrs.field(default=None, repr=False)
    jwt: str | None = attrs.field(default=None, repr=False)
    digest: str = attrs.field(default="", repr=False)

    def __bool__(self) -> bool:
        """True if there are any credentials."""
        return any(getattr(self, name) for name in CONNECT_NAMES)


AuthCallback = Callable[[str], "AuthFields | Mapping[str, str]"]
"""Gets the nonce ("" if the server sent none) and returns the fields of CONNECT."""


@attrs.frozen(kw_only=True)
class Authenticator:
    """The credentials of a client. Every text may be a str, a `Secret`, `env:NAME`, or a callable that returns the
    text.

    Choose one way: user and password, token, nkey seed (text or file), JWT with seed, `.creds`, `signature_callback`
    with `nkey` or `jwt`, or `auth_callback`. There is one exception, for servers with auth callout: you can combine
    user and password, or a token, with a way that signs. The client then sends both. `credentials` is a path, the bytes
    of such a file, or a callable that returns either. The object can be pickled if its callables can.

    Attributes:
        user: User name.
        password: Password of that user.
        token: A token.
        nkey_seed: The seed of a user nkey (SU...). The client signs with it and never sends it.
        nkey_seed_file: A file with that seed.
        jwt: A user JWT; it needs a seed or a `signature_callback`.
        credentials: A `.creds` file, its bytes, or a callable that returns either; the client reads it at every
            connect.
        nkey: The public nkey (U...), with `signature_callback`.
        signature_callback: A function that signs the server's nonce.
        auth_callback: A function that gets the nonce and returns AuthFields.
    """

    user: SecretSource | None = attrs.field(default=None, converter=as_secret, validator=IS_SECRET)
    password: SecretSource | None = attrs.field(default=None, converter=as_secret, validator=IS_SECRET)
    token: SecretSource | None = attrs.field(default=None, converter=as_secret, validator=IS_SECRET)
    nkey_seed: SecretSource | None = attrs.field(default=None, converter=as_secret, validator=IS_SECRET)
    nkey_seed_file: str | os.PathLike[str] | None = None
    jwt: SecretSource | None = attrs.field(default=None, converter=as_secret, validator=IS_SECRET)
    credentials: Any = attrs.field(default=None, repr=False)
    nkey: str | None = None
    signature_callback: SignatureCallback | None = attrs.field(default=None, repr=False)
    auth_callback: AuthCallback | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        self._check_one_way()
        if self.password is not None and self.user is None:
            raise ConfigError("a password needs a user beside it: give user=, or both in the URL")
        if self.signature_callback is not None and self.nkey is None and self.jwt is None:
            raise ConfigError("signature_callback needs nkey (the public key) or jwt beside it")
        if self.nkey is not None:
            _only_users(decode_public(self.nkey)[0], "nkey")
        signers = [x for x in (self.nkey_seed, self.nkey_seed_file, self.signature_callback) if x is not None]
        if len(signers) > 1:
            raise ConfigError("give one of nkey_seed, nkey_seed_file and signature_callback")
        if (self.jwt or self.nkey) is not None and not signers:
            raise ConfigError("jwt and nkey need nkey_seed, nkey_seed_file or signature_callback to sign with")

    def _check_one_way(self) -> None:
        signed = (self.nkey_seed, self.nkey_seed_file, self.jwt, self.signature_callback)
        plain = {"user": self.user, "token": self.token}
        signing = {
            "credentials": self.credentials,
            "nkey_seed, jwt or signature_callback": next((value for value in signed if value is not None), None),
        }
        callback = {"auth_callback": self.auth_callback}
        for ways in (plain, signing, callback | plain, callback | signing):
            given = [name for name, value in ways.items() if value is not None]
            if len(given) > 1:
                raise ConfigError(f"give one kind of credentials, not {' and '.join(given)} together")

    @property
    def configured(self) -> bool:
        """True if the options name any credentials."""
        return any(getattr(self, field.name) is not None for field in attrs.fields(Authenticator))

    def fields(
        self,
        nonce: str | None,
        *,
        url_user: str = "",
        url_password: Secret | None = None,
        url_token: Secret | None = None,
    ) -> AuthFields:
        """The fields of CONNECT for a server that sent `nonce`. User and password of a URL replace these options.

        Raises ConfigError for unusable credentials, and AuthError if the server cannot accept this kind.

        `url_user`, `url_password` and `url_token` are the user information of the URL to connect to.
        """
        if self.auth_callback is None:
            signed = self._signed_fields(nonce)
        else:
            signed = _with_digest(_callback_fields(handlers.ran(self.auth_callback(nonce or ""))))
        plain = self._plain_fields(url_user, url_password, url_token)
        return _with_digest(attrs.evolve(signed, **plain), signed.digest) if plain else signed

    def _plain_fields(self, url_user: str, url_password: Secret | None, url_token: Secret | None) -> dict[str, Any]:
        """User and password, or a token: from the URL, or else from the options."""
        if url_token is not None:
            # Never resolved: the author of a URL must not choose the environment variable that is sent there.
            return {"auth_token": url_token.reveal(), "user": None, "password": None}
        if url_user:
            password = url_password.reveal() if url_password else ""
            return {"user": url_user, "password": password, "auth_token": None}
        if self.token is not None:
            return {"auth_token": read_secret(self.token, "token")}
        if self.user is not None:
            password = read_secret(self.password, "password") or ""
            return {"user": read_secret(self.user, "user"), "password": password}
        return {}

    def _signed_fields(self, nonce: str | None) -> AuthFields:
        if self.credentials is not None:
            jwt, seed = parse_creds(_read_credentials(self.credentials))
            return _sign(nonce, seed=seed, jwt=jwt)
        if self.signature_callback is not None:
            jwt_now = read_secret(self.jwt, "jwt")
            signature = handlers.ran(self.signature_callback(_nonce_bytes(nonce, bool(jwt_now))))
            return _with_digest(AuthFields(nkey=None if jwt_now else self.nkey, jwt=jwt_now, sig=_base64(signature)))
        if self.nkey_seed_file is not None:
            return _sign(
                nonce, seed=parse_seed(_named_by_option(self.nkey_seed_file)), jwt=read_secret(self.jwt, "jwt")
            )
        if self.nkey_seed is not None:
            seed = read_secret(self.nkey_seed, "nkey_seed") or ""
            return _sign(nonce, seed=seed, jwt=read_secret(self.jwt, "jwt"))
        return AuthFields()


def _sign(nonce: str | None, *, seed: str, jwt: str | None) -> AuthFields:
    pair = KeyPair(seed)
    _only_users(pair.kind, "the nkey seed")
    sig = _base64(pair.sign(_nonce_bytes(nonce, bool(jwt))))
    return _with_digest(AuthFields(nkey=None if jwt else pair.public, jwt=jwt, sig=sig), pair.public)


def _only_users(kind: KeyType, what: str) -> None:
    """The client only signs as a user. A signature of an account or operator key could turn out to be an issued JWT."""
    if kind is not KeyType.USER:
        raise ConfigError(
            f"{what} is that of a key of kind {kind.name.lower()}: only a user's (SU..., public U...) proves to a "
            "server who connects. Nothing was signed"
        )


def _nonce_bytes(nonce: str | None, has_jwt: bool) -> bytes:
    if not nonce and not has_jwt:
        raise AuthError("the server sent no nonce: it is not configured for nkeys")
    return (nonce or "").encode()


def _base64(signature: bytes | str) -> str:
    if isinstance(signature, str):
        return signature
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def _callback_fields(answer: Any) -> AuthFields:
    if isinstance(answer, AuthFields):
        return answer
    if not isinstance(answer, Mapping):
        raise ConfigError(f"auth_callback must return AuthFields or a mapping, not {type(answer).__name__}")
    unknown = sorted(set(map(str, answer)) - set(CONNECT_NAMES))
    if unknown:
        raise ConfigError(f"auth_callback returned unknown fields {unknown}; known are {list(CONNECT_NAMES)}")
    for name, value in answer.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"auth_callback returned {type(value).__name__} as {name}; it must be text")
    return AuthFields(**answer)


def _with_digest(fields: AuthFields, public: str = "") -> AuthFields:
    """Add the digest of all fields except the signature, which changes with the nonce."""
    parts = [getattr(fields, name) or "" for name in CONNECT_NAMES if name != "sig"]
    text = "\0".join([*parts, public])
    return attrs.evolve(fields, digest=hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest())


# --- files: .creds and seeds ---------------------------------------------------------------------------------------


def parse_creds(data: bytes) -> tuple[str, str]:
    """JWT and seed of a `.creds` file. Raises ConfigError without any of its content."""
    sections = _sections(_text(data))
    jwt = next((body for name, body in sections if "JWT" in name), "")
    seed = next((body for name, body in sections if "SEED" in name or "NKEY" in name), "")
    if not jwt:
        raise ConfigError("the credentials hold no user JWT (-----BEGIN NATS USER JWT-----)")
    if not seed:
        raise ConfigError("the credentials hold no nkey seed (-----BEGIN USER NKEY SEED-----)")
    return jwt, seed


def parse_seed(data: bytes) -> str:
    """The seed of a file that contains it bare or between -----BEGIN and -----END lines."""
    text = _text(data)
    seed = next((body for name, body in _sections(text) if "SEED" in name or "NKEY" in name), "")
    if not seed:
        seed = next((line.strip() for line in text.splitlines() if line.strip().startswith("S")), "")
    if not seed:
        raise ConfigError("the file holds no nkey seed: a line that begins with S")
    return seed


def _text(data: bytes) -> str:
    if len(data) > MAX_CREDS_SIZE:
        raise ConfigError("the credentials are larger than 1 MB: that is no credentials file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError("the credentials are not text") from None


def _sections(text: str) -> list[tuple[str, str]]:
    """(name in capitals, body without blanks) of each -----BEGIN name----- block; the END line may be missing."""
    found: list[tuple[str, str]] = []
    name: str | None = None
    body: list[str] = []
    for line in text.splitlines():
        armour = _ARMOUR.match(line)
        if armour is None:
            if name is not None:
                body.append(line.strip())
            continue
        if name is not None:
            found.append((name, "".join(body)))
        name = armour[2].strip().upper() if armour[1].upper() == "BEGIN" else None
        body = []
    if name is not None:
        found.append((name, "".join(body)))
    return found


def _read_credentials(source: Any) -> bytes:
    if isinstance(source, (str, Secret)):
        return _named_by_option(source)
    if callable(source):
        source = handlers.ran(source())
    if isinstance(source, (bytes, bytearray)):
        return bytes(source)
    if isinstance(source, (str, Secret)):
        return _contents(source.reveal() if isinstance(source, Secret) else source, "that was returned")
    if isinstance(source, os.PathLike):
        return _read_file(source)
    raise ConfigError(f"credentials must be a path, bytes or a callable that returns one, not {type(source).__name__}")


_warned: set[str] = set()


def _named_by_option(source: str | os.PathLike[str] | Secret) -> bytes:
    """The content of a file. The option or its variable (`env:NAME`) has the path, or the content itself."""
    if isinstance(source, str) and not source.startswith(ENV_PREFIX):
        return _contents(source)
    if isinstance(source, (str, Secret)):
        # Show it as it was given, because the variable may hold the secret itself instead of a path.
        return _contents(Secret(source).resolve(), str(source))
    return _read_file(source)


def _contents(text: str, shown: str | None = None) -> bytes:
    return text.encode() if text.lstrip().startswith("-----BEGIN") else _read_file(text, shown)


def _read_file(path: str | os.PathLike[str], shown: str | None = None) -> bytes:
    path = os.path.expanduser(os.fspath(path))
    try:
        with open(path, "rb") as file:
            _warn_about_mode(path, os.fstat(file.fileno()).st_mode)
            return file.read(MAX_CREDS_SIZE + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"cannot read the credentials file {shown or path}: {why}") from None


def _warn_about_mode(path: str, mode: int) -> None:
    """Warn once per file and process."""
    if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH) and path not in _warned:
        _warned.add(path)
        log.warning("the credentials file %s can be read by other users (mode %o)", path, stat.S_IMODE(mode))
