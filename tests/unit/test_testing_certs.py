"""jsclient.testing.certificates: each certificate is accepted or refused for the reason it is named after."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from jsclient.testing import Certificates, Pair, certificates


@pytest.fixture(scope="module")
def certs(cryptography: object, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


def handshake(certs: Certificates, server: Pair, *, client: Pair | None = None, want_client: bool = False) -> None:
    """A whole TLS handshake in memory: raises ssl.SSLError when one side refuses the other."""
    ours = ssl.create_default_context(cafile=certs.ca)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(server.cert, server.key)
    if want_client:
        theirs.verify_mode = ssl.CERT_REQUIRED
        theirs.load_verify_locations(certs.ca)
    if client is not None:
        ours.load_cert_chain(client.cert, client.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = ours.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    far = theirs.wrap_bio(to_server, to_client, server_side=True)
    finished = set()
    for side in (near, far) * 5:
        try:
            side.do_handshake()
            finished.add(side)
        except ssl.SSLWantReadError:
            continue
    assert finished == {near, far}


def test_the_good_certificates_are_accepted(certs: Certificates) -> None:
    handshake(certs, certs.server)
    handshake(certs, certs.server, client=certs.client, want_client=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("expired", "expired"), ("wrong_name", "mismatch"), ("foreign", "unable to get local issuer|self.signed")],
)
def test_the_bad_server_certificates_are_refused(certs: Certificates, name: str, reason: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        handshake(certs, getattr(certs, name))


@pytest.mark.parametrize("client", [None, "foreign_client"])
def test_missing_and_foreign_client_certificates_are_refused(certs: Certificates, client: str | None) -> None:
    with pytest.raises(ssl.SSLError):
        handshake(certs, certs.server, client=getattr(certs, client) if client else None, want_client=True)


def test_server_config_names_the_files(certs: Certificates) -> None:
    text = certs.server_config(verify=True, extra="timeout: 2")
    assert f'cert_file: "{certs.server.cert}"' in text
    assert "verify: true" in text
    assert "timeout: 2" in text
    assert Path(certs.server.key).stat().st_mode & 0o077 == 0
