"""jsclient.nuid: shape, uniqueness over threads and forks, entropy of inbox ids."""

from __future__ import annotations

import itertools
import os
import threading

import pytest

from jsclient import nuid


def test_shape() -> None:
    assert len(nuid.next_nuid()) == 22
    assert set(nuid.next_nuid()) <= set(nuid.ALPHABET)
    assert len(nuid.new_token()) == 12
    assert len(nuid.inbox_id()) == 22


def test_nuids_of_a_process_share_the_prefix_and_inbox_ids_do_not() -> None:
    assert nuid.next_nuid()[:12] == nuid.next_nuid()[:12]
    assert nuid.inbox_id()[:12] != nuid.inbox_id()[:12]


def test_inbox_ids_cannot_be_guessed() -> None:
    assert nuid.BASE**nuid.INBOX_LENGTH > 2**128


def test_unique_over_threads() -> None:
    found: list[list[str]] = [[] for _ in range(8)]

    def run(into: list[str]) -> None:
        into.extend(nuid.next_nuid() for _ in range(5000))
        into.extend(nuid.new_token().decode() for _ in range(5000))

    threads = [threading.Thread(target=run, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [one for into in found for one in into]
    assert len(set(everything)) == len(everything) == 80_000


def test_a_used_up_counter_gets_a_new_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nuid, "_current", nuid._Generator())
    before = nuid.next_nuid()
    nuid._current._sequence = lambda: nuid._SEQUENCE_END
    after = nuid.next_nuid()
    assert after[:12] != before[:12]
    assert len(after) == 22


@pytest.mark.parametrize(("number", "text"), [(0, "00"), (61, "0z"), (62, "10"), (62 * 62 - 1, "zz")])
def test_base62(number: int, text: str) -> None:
    assert nuid._encode(number, 2) == text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_starts_anew() -> None:
    parent = nuid.next_nuid()[:12]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, nuid.next_nuid()[:12].encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert len(text) == 12
    assert text != parent
    assert nuid.next_nuid()[:12] == parent


def test_tokens_without_end_are_like_single_ones() -> None:
    given = list(itertools.islice(nuid.tokens(), 3 * nuid.TOKENS_AT_ONCE))
    assert len(set(given)) == len(given)
    assert {len(token) for token in given} == {nuid.TOKEN_LENGTH}
    assert next(nuid.tokens()) not in given


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_use_the_tokens_of_its_parent() -> None:
    nuid.new_token()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, nuid.new_token())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        token = pipe.read()
    os.waitpid(child, 0)
    assert len(token) == nuid.TOKEN_LENGTH
    assert token != nuid.new_token()
