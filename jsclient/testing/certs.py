"""Certificates for TLS tests: two authorities; good, expired, misnamed ones. Needs `cryptography` (extra `nkeys`)."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """Paths of one certificate and its key, both PEM, ready for `tls { cert_file, key_file }` and SSLContext."""

    cert: str
    key: str


@dataclass(frozen=True)
class Certificates:
    """The files that `certificates()` wrote. `ca` has signed all except the foreign ones."""

    ca: str  #: the authority's certificate: what a client trusts
    foreign_ca: str  #: another authority, that signed only `foreign`
    server: Pair  #: for localhost, 127.0.0.1 and ::1
    client: Pair  #: a client, CN=client
    expired: Pair  #: like server, ended yesterday
    wrong_name: Pair  #: for other.example only
    foreign: Pair  #: like server, signed by foreign_ca
    foreign_client: Pair  #: a client, signed by foreign_ca

    def server_config(self, pair: Pair | None = None, *, verify: bool = False, extra: str = "") -> str:
        """A `tls { }` block for NatsServer: `pair` or the good server certificate; `verify` wants mTLS.

        `extra` is further lines of the block.
        """
        used = pair or self.server
        lines = [f'cert_file: "{used.cert}"', f'key_file: "{used.key}"', f'ca_file: "{self.ca}"']
        lines += ["verify: true"] * verify + [extra] * bool(extra)
        return "tls {\n  " + "\n  ".join(lines) + "\n}\n"


class _Authority:
    """One certificate authority, able to sign."""

    def __init__(self, folder: Path, name: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self.folder = folder
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.cert = self._sign(name, self.key, [], authority=True, end=DAY)
        self.path = _write(folder / f"{name}.pem", _pem(self.cert))

    def issue(self, file: str, names: list[str], *, common_name: str = "", end: datetime.timedelta = DAY) -> Pair:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._sign(common_name or file, key, names, authority=False, end=end)
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Pair(_write(self.folder / f"{file}.pem", _pem(cert)), _write(self.folder / f"{file}.key", text))

    def _sign(
        self, name: str, key: EllipticCurvePrivateKey, names: list[str], *, authority: bool, end: datetime.timedelta
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        now = datetime.datetime.now(datetime.timezone.utc)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + end)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if authority:
            # OpenSSL's strict check, Python's default since 3.13, wants key usage on an authority.
            builder = builder.add_extension(_signing_usage(), critical=True)
        else:
            usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_name(n) for n in names]), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _signing_usage() -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(cert: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return cert.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, data: bytes) -> str:
    path.touch(0o600)
    path.chmod(0o600)  # before it contains the key
    path.write_bytes(data)
    return str(path)


def certificates(folder: str | os.PathLike[str]) -> Certificates:
    """Write a fresh set of certificates into `folder` (about 10 ms) and return their paths."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    authority = _Authority(place, "ca")
    foreign = _Authority(place, "foreign-ca")
    local = ["localhost", "127.0.0.1", "::1"]
    return Certificates(
        ca=authority.path,
        foreign_ca=foreign.path,
        server=authority.issue("server", local, common_name="localhost"),
        client=authority.issue("client", ["client.example"], common_name="client"),
        expired=authority.issue("expired", local, common_name="localhost", end=-DAY),
        wrong_name=authority.issue("wrong-name", ["other.example"], common_name="other.example"),
        foreign=foreign.issue("foreign", local, common_name="localhost"),
        foreign_client=foreign.issue("foreign-client", ["client.example"], common_name="client"),
    )
