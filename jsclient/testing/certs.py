"""Certificates for TLS tests: two authorities; good, expired, misnamed ones. Needs `trustme` (extra `testing`)."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trustme


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
    client: Pair  #: a client, client.example
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


def certificates(folder: str | os.PathLike[str]) -> Certificates:
    """Write a fresh set of certificates into `folder` (about 10 ms) and return their paths."""
    try:
        import trustme
    except ImportError:
        raise RuntimeError("certificates() needs trustme: pip install 'jsclient[testing]'") from None
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    ours, foreign = trustme.CA(), trustme.CA()
    now = datetime.datetime.now(datetime.timezone.utc)
    began, ended = now - datetime.timedelta(days=10), now - datetime.timedelta(days=1)
    local = ["localhost", "127.0.0.1", "::1"]
    return Certificates(
        ca=_write(place / "ca.pem", ours.cert_pem),
        foreign_ca=_write(place / "foreign-ca.pem", foreign.cert_pem),
        server=_pair(place / "server", ours.issue_cert(*local)),
        client=_pair(place / "client", ours.issue_cert("client.example", common_name="client")),
        expired=_pair(place / "expired", ours.issue_cert(*local, not_before=began, not_after=ended)),
        wrong_name=_pair(place / "wrong-name", ours.issue_cert("other.example")),
        foreign=_pair(place / "foreign", foreign.issue_cert(*local)),
        foreign_client=_pair(place / "foreign-client", foreign.issue_cert("client.example", common_name="client")),
    )


def _pair(path: Path, made: trustme.LeafCert) -> Pair:
    cert = _write(path.with_suffix(".pem"), made.cert_chain_pems[0])
    return Pair(cert, _write(path.with_suffix(".key"), made.private_key_pem))


def _write(path: Path, blob: trustme.Blob) -> str:
    path.touch(0o600)
    path.chmod(0o600)  # before it contains the key
    path.write_bytes(blob.bytes())
    return str(path)
