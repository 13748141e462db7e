"""jsclient.auth.nkeys: text forms, checksums, signatures, and errors that never show a seed."""

from __future__ import annotations

import base64
import sys

import pytest

from jsclient.auth import nkeys
from jsclient.auth.nkeys import KeyPair, KeyType
from jsclient.errors import ConfigError

# The example pair of the NATS documentation.
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


@pytest.mark.usefixtures("cryptography")
def test_seed_to_public_as_every_other_client() -> None:
    pair = KeyPair(SEED)
    assert pair.kind is KeyType.USER
    assert pair.public == PUBLIC
    assert SEED not in repr(pair)


@pytest.mark.usefixtures("cryptography")
def test_sign_and_verify() -> None:
    signature = KeyPair(SEED).sign(b"nonce")
    assert len(signature) == 64
    assert nkeys.verify(PUBLIC, b"nonce", signature)
    assert not nkeys.verify(PUBLIC, b"other", signature)


@pytest.mark.parametrize(("kind", "letter"), [(k, k.name[0] if k is not KeyType.SERVER else "N") for k in KeyType])
def test_every_kind_round_trips(kind: KeyType, letter: str) -> None:
    letter = "X" if kind is KeyType.CURVE else letter
    letter = "C" if kind is KeyType.CLUSTER else letter
    raw = bytes(range(32))
    public, seed = nkeys.encode_public(kind, raw), nkeys.encode_seed(kind, raw)
    assert public[0] == letter
    assert seed[:2] == "S" + letter
    assert (len(public), len(seed)) == (56, 58)
    assert nkeys.decode_public(public) == (kind, raw)
    assert nkeys.decode_seed(seed) == (kind, raw)


@pytest.mark.usefixtures("cryptography")
def test_blanks_around_a_seed_do_not_matter() -> None:
    assert KeyPair(f"  {SEED}\r\n").public == PUBLIC


def _checked(raw: bytes) -> str:
    return base64.b32encode(raw + nkeys.crc16(raw).to_bytes(2, "little")).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "S",
        "!" * 58,
        SEED[:-1],
        SEED[:-2] + "AA",
        SEED[:10] + "A" + SEED[11:],
        SEED.lower(),
        PUBLIC,
        _checked(bytes([nkeys.SEED_PREFIX | 5, 8]) + bytes(31)),
        _checked(bytes([nkeys.SEED_PREFIX | 7, 248]) + bytes(32)),
        "\N{SNOWMAN}" * 58,
    ],
)
def test_a_wrong_seed_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        nkeys.decode_seed(text)
    if len(text) > 10:
        assert text[4:-4] not in str(caught.value)


def test_every_single_character_change_is_noticed() -> None:
    for position in range(len(PUBLIC)):
        other = "B" if PUBLIC[position] == "A" else "A"
        assert not nkeys.is_public(PUBLIC[:position] + other + PUBLIC[position + 1 :])


def test_is_public() -> None:
    assert nkeys.is_public(PUBLIC)
    assert nkeys.is_public(PUBLIC, KeyType.USER)
    assert not nkeys.is_public(PUBLIC, KeyType.ACCOUNT)
    assert not nkeys.is_public(SEED)


@pytest.mark.parametrize("make", [nkeys.encode_public, nkeys.encode_seed])
def test_wrong_sizes_are_refused(make: object) -> None:
    with pytest.raises(ConfigError):
        make(KeyType.USER, b"short")  # type: ignore[operator]


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigError, match=r"pip install jsclient\[nkeys\]"):
        KeyPair(SEED)
    with pytest.raises(ConfigError, match=r"pip install jsclient\[nkeys\]"):
        nkeys.verify(PUBLIC, b"", b"")


def test_crc16_is_xmodem() -> None:
    assert nkeys.crc16(b"123456789") == 0x31C3
