"""TLS around any byte stream: an `SSLObject` over memory buffers, socket I/O outside of it.

OpenSSL does not allow two threads to use one session simultaneously. So a separate lock covers the short moments in
which bytes go into or out of the session. Neither side ever waits for the network while holding it. A thread takes the
send lock of the link first, then this one.

Records must reach the socket in the order in which they were made. Therefore only senders, which hold the send lock,
send the session's output. The reader only reports it in `needs_flush`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from typing import Final

from jsclient import waiting
from jsclient._transport.sealing import SealingTransport, head_of
from jsclient._transport.stream import Buffer, TlsState, Transport
from jsclient.durations import Deadline
from jsclient.errors import ConfigError, TlsError

ENCRYPT_SLICE: Final = 124 * 1024
"""Bytes encrypted ahead of the socket, which a lost link loses. A coalesced write (108 KiB and the frame that exceeded
it) fits. When it did not, its end took a separate record and system call, which were a fifth of the cost of TLS."""

DECRYPT_SIZE: Final = 16 * 1024  # one record, the most that SSLObject.read returns
MAX_TRICKLE: Final = 1.0  # seconds that recv waits for the rest of a record while bytes keep coming


class TlsAlert(TlsError, OSError):
    """The TLS session broke after the handshake. With TLS 1.3, the server may also have refused our certificate."""


class TlsTransport(SealingTransport):
    """An established TLS session over another transport. Made by `start_tls`."""

    secure = True

    def __init__(self, inner: Transport, context: ssl.SSLContext, server_hostname: str) -> None:
        super().__init__(inner)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._lock = waiting.new_lock()  # of the session
        self._ended = False
        self._error: TlsAlert | None = None
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)

    # --- reading

    def recv(self) -> bytes | None:
        return self._read(None, by_tick=True)

    def recv_within(self, timeout: float | None) -> bytes | None:
        return self._read(timeout, by_tick=False)

    def _read(self, timeout: float | None, by_tick: bool) -> bytes | None:
        deadline = Deadline(MAX_TRICKLE if by_tick else timeout)
        data: bytes | None = None
        while True:
            with self._lock:
                if data:
                    self._incoming.write(data)
                elif data is not None:
                    self._incoming.write_eof()
                plain = self._decrypt()
            if plain:
                return plain
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            if data is not None and by_tick and deadline.expired():
                return None  # a record that trickles in must not keep the reader from its pings
            data = self._inner.recv() if by_tick else self._inner.recv_within(deadline.remaining())
            if data is None:
                return None

    def _decrypt(self) -> bytes:
        """The contents of the complete records; b"" may be the end of the stream. The caller has the lock."""
        chunks = []
        incoming, read = self._incoming, self._session.read
        # Check before reading, because "want read" is an exception. It took 1.5 µs, twice per chunk (12 KiB: 11 µs, now
        # 7.6). Tried: a permanent buffer to read into, not faster than a bytes object per record and a join.
        while not self._ended and (incoming.pending or incoming.eof):
            try:
                chunk = read(DECRYPT_SIZE)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # A stream cut without close_notify is treated like a closed one: NATS frames carry their length.
                self._ended = True
            except ssl.SSLError as error:
                # The data decrypted before comes first; the next call raises the error.
                self._ended = True
                self._error = TlsAlert(explain(error, self.peer))
            else:
                self._ended = not chunk
                chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    # --- writing

    @property
    def unsent(self) -> int:
        return super().unsent + self._outgoing.pending

    @property
    def needs_flush(self) -> bool:
        return self._outgoing.pending > 0

    def _seal(self, blocks: Sequence[Buffer]) -> tuple[int, list[bytes]]:
        piece = head_of(blocks, ENCRYPT_SLICE)
        try:
            with self._lock:
                if piece:
                    self._session.write(piece)
                records = self._outgoing.read()
        except ssl.SSLError as error:
            raise TlsAlert(explain(error, self.peer)) from error
        return len(piece), [records] if records else []

    # --- the handshake

    def handshake(self, timeout: float | None) -> None:
        """Block until the session is established and the certificate is verified. Raises TlsError."""
        deadline = Deadline(timeout)
        while True:
            try:
                with self._lock:
                    self._session.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_handshake(deadline)
                self._feed_handshake(deadline)
                continue
            except (ssl.SSLError, ssl.CertificateError) as error:
                self._say_goodbye()
                raise TlsError(explain(error, self.peer)) from error
            break
        self._flush_handshake(deadline)
        with self._lock:
            name, version, bits = self._session.cipher() or ("", "", 0)
            self.tls = TlsState(
                version=self._session.version() or version or "",
                cipher=name,
                secret_bits=bits or 0,
                peer_certificate=self._session.getpeercert(binary_form=True) or b"",
                server_name=self._session.server_hostname or "",
            )

    def _flush_handshake(self, deadline: Deadline) -> None:
        try:
            done = self._inner.send(self._outgoing.read(), deadline.remaining())
        except OSError as error:
            raise TlsError(f"{self.peer} closed the connection during the TLS handshake: {error}") from error
        if not done:
            raise TlsError(f"TLS handshake with {self.peer}: no progress in time")

    def _feed_handshake(self, deadline: Deadline) -> None:
        try:
            data = self._inner.recv_within(deadline.remaining())
        except OSError as error:
            raise TlsError(f"{self.peer} closed the connection during the TLS handshake: {error}") from error
        if data is None:
            raise TlsError(f"TLS handshake with {self.peer}: no answer in time; is that a TLS port?")
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _say_goodbye(self) -> None:
        """Send the server the reason (the alert that OpenSSL has prepared), if that is possible without waiting."""
        try:
            self._inner.send(self._outgoing.read(), 0)
        except OSError:
            pass

    @property
    def version(self) -> str:
        """Protocol version in use, such as "TLSv1.3"."""
        return self._session.version() or ""


def start_tls(
    transport: Transport, context: ssl.SSLContext, server_hostname: str, timeout: float | None
) -> TlsTransport:
    """Encrypt `transport` from here on; blocks until the handshake is done.

    The certificate must be valid for `server_hostname` (a name or an IP address). Raises TlsError with the reason; the
    caller then closes `transport`.
    """
    try:
        tls = TlsTransport(transport, context, server_hostname)
    except ValueError as error:
        raise TlsError(f"cannot verify a certificate for the name {server_hostname!r}: {error}") from error
    tls.handshake(timeout)
    return tls


def default_tls_context(
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    *,
    key_password: str | None = None,
    ca_data: str | bytes | None = None,
) -> ssl.SSLContext:
    """A context that verifies certificate and name, TLS 1.2 or later.

    With `ca_file` (PEM) or `ca_data` (PEM text or DER bytes) it trusts only those authorities, otherwise the
    authorities of the system. `cert_file` and `key_file` are the client's own certificate. `cert_file` may contain the
    key.
    """
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca_file, cadata=ca_data)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load the certificate authorities of {ca_file or 'ca_data'}: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a renegotiation would let a write wait for a read
    if cert_file is not None:
        try:
            # A callable, because OpenSSL would prompt on the terminal for the password of an encrypted key.
            context.load_cert_chain(cert_file, key_file, password=lambda: key_password or "")
        except OSError as error:
            from jsclient._transport import pkcs12

            pkcs12.refuse(cert_file, key_file)
            raise ConfigError(f"cannot load the client certificate {cert_file}: {error}") from error
    elif key_file is not None:
        raise ConfigError("a key file belongs to a certificate: give cert_file= as well")
    return context


# --- why it failed --------------------------------------------------------------------------------------

_VERIFY_CODES: Final = {  # X509_V_ERR_* of OpenSSL
    9: "the certificate is not valid yet (check the clocks)",
    10: "the certificate has expired",
    18: "the certificate is self-signed and not trusted (name it as CA file if it is yours)",
    19: "the certificate authority is not trusted (give its certificate as CA file)",
    20: "the certificate authority is not known (give its certificate as CA file)",
    21: "the certificate authority is not known (give its certificate as CA file)",
    23: "the certificate was revoked",
    62: "the certificate is for another host name",
    64: "the certificate is for another IP address",
}
_REASONS: Final = {
    "WRONG_VERSION_NUMBER": "the server does not speak TLS on this port (or wants the handshake after INFO)",
    "HTTP_REQUEST": "the server does not speak TLS on this port",
    "UNSUPPORTED_PROTOCOL": "the server offers only TLS versions that are too old",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the server refuses our TLS versions",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server wants a client certificate and got none",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not know the authority of our client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the server wants a valid client certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our client certificate has expired",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server refused the handshake",
    "TLSV1_ALERT_CERTIFICATE_REQUIRED": "the server wants a client certificate and got none",
}


def explain(error: ssl.SSLError | ssl.CertificateError, peer: str) -> str:
    """One sentence that names the peer and the reason, followed by OpenSSL's own words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        own = error.verify_message
        reason = _VERIFY_CODES.get(error.verify_code, "the certificate did not verify")
    elif isinstance(error, ssl.SSLEOFError):
        return f"TLS with {peer}: the server closed the connection during the handshake"
    else:
        own = str(getattr(error, "reason", "") or error)
        reason = _REASONS.get(own, "the session failed")
    return f"TLS with {peer}: {reason} ({own})"
