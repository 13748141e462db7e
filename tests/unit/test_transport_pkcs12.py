"""PKCS#12 files as client certificates are refused with the way out; encrypted PEM keys work."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from jsclient._transport.tls import default_tls_context
from jsclient.errors import ConfigError
from jsclient.testing.certs import certificates


def test_a_pkcs12_file_is_refused_with_advice_and_its_pem_form_works(tmp_path: Path) -> None:
    pair = certificates(tmp_path).client
    key = serialization.load_pem_private_key(Path(pair.key).read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(Path(pair.cert).read_bytes())
    encryption = serialization.BestAvailableEncryption(b"secret")
    packed = tmp_path / "client.p12"
    packed.write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, certificate, None, encryption))  # type: ignore[arg-type]
    for files in ((packed, None), (pair.cert, packed)):
        with pytest.raises(ConfigError, match=r"client.p12 is a PKCS#12 file.*openssl pkcs12 -in FILE -out client.pem"):
            default_tls_context(cert_file=files[0], key_file=files[1], key_password="secret")
    pem = tmp_path / "client.pem"
    coded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    pem.write_bytes(Path(pair.cert).read_bytes() + coded)
    default_tls_context(cert_file=pem, key_password="secret")


def test_other_files_that_are_no_certificates_keep_their_error(tmp_path: Path) -> None:
    der = tmp_path / "client.der"
    text = Path(certificates(tmp_path).client.cert).read_bytes()
    der.write_bytes(x509.load_pem_x509_certificate(text).public_bytes(serialization.Encoding.DER))
    for file in (der, tmp_path / "none.pem"):
        with pytest.raises(ConfigError, match="cannot load the client certificate"):
            default_tls_context(cert_file=file)
