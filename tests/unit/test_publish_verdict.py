"""What a refusal of a publish means: every error code, with and without another copy in doubt and an expectation."""

from __future__ import annotations

import base64
import json

import pytest

from jsclient.errors import ApiError, PublishUnknown, WrongLastSequence, api_error
from jsclient.jetstream.api.models import PubAck
from jsclient.jetstream.publishing.options import HeaderCheck
from jsclient.jetstream.publishing.outcome import (
    PAUSES,
    TEMPORARY,
    Inquiry,
    Published,
    Verdict,
    judge,
    position,
    stream_of,
)
from jsclient.message import Msg

PLAIN = Published("s.a", b"x")
WITH_ID = Published("s.a", b"x", ("Nats-Msg-Id", "1"))
AFTER_5 = Published("s.a", b"x", after=5)
ON_SUBJECT_5 = Published("s.a", b"x", after_on_subject=5, expected_on="s.a")
ID_ON_SUBJECT_5 = Published("s.a", b"x", ("Nats-Msg-Id", "1"), after_on_subject=5, expected_on="s.a")
BOTH = Published("s.a", b"x", after=7, after_on_subject=5, expected_on="s.a")
ALL = (PLAIN, WITH_ID, AFTER_5, ON_SUBJECT_5, ID_ON_SUBJECT_5, BOTH)

LAST_SEQUENCE = (10071, 10164)
CODES = sorted({*ApiError.registry, *TEMPORARY, 10077, 10999, 0})


def refusal(err_code: int, text: str = "x") -> ApiError:
    return api_error(400, err_code, text)


@pytest.mark.parametrize("published", ALL)
def test_every_code_with_another_copy_in_doubt(published: Published) -> None:
    """Whatever it says, it says it about one copy."""
    for code in CODES:
        verdict = judge(refusal(code), published, in_doubt=True)
        assert verdict is (Verdict.AGAIN if code in TEMPORARY else Verdict.DOUBT), code


@pytest.mark.parametrize("published", ALL)
def test_every_code_about_the_only_copy(published: Published) -> None:
    for code in CODES:
        if code not in LAST_SEQUENCE:
            verdict = judge(refusal(code), published, in_doubt=False)
            assert verdict is (Verdict.AGAIN if code in TEMPORARY else Verdict.REFUSED), code


@pytest.mark.parametrize(
    ("published", "last", "verdict"),
    [
        # N is what the server says, None is 10164.
        (PLAIN, 5, Verdict.REFUSED),
        (PLAIN, None, Verdict.LISTEN),
        (WITH_ID, 5, Verdict.LOOK),
        (ON_SUBJECT_5, None, Verdict.LISTEN),
        (ON_SUBJECT_5, 0, Verdict.LISTEN),
        (ON_SUBJECT_5, 4, Verdict.LISTEN),
        (ON_SUBJECT_5, 5, Verdict.REFUSED),
        (AFTER_5, 5, Verdict.LOOK),
        (ON_SUBJECT_5, 6, Verdict.REFUSED),
        (ID_ON_SUBJECT_5, 4, Verdict.LISTEN),
        (ID_ON_SUBJECT_5, 6, Verdict.LOOK),
        (AFTER_5, None, Verdict.LISTEN),
        (AFTER_5, 4, Verdict.LISTEN),
        (AFTER_5, 6, Verdict.LOOK),
        (BOTH, 6, Verdict.LISTEN),
        (BOTH, 8, Verdict.LOOK),
    ],
)
def test_wrong_last_sequence_of_the_only_copy(published: Published, last: int | None, verdict: Verdict) -> None:
    error = refusal(10164, "wrong last sequence") if last is None else refusal(10071, f"wrong last sequence: {last}")
    assert judge(error, published, in_doubt=False) is verdict


def test_the_raft_layer_has_no_codes() -> None:
    assert judge(api_error(503, 0, "raft: not leader"), PLAIN, in_doubt=False) is Verdict.AGAIN


def test_what_is_known_from_the_headers() -> None:
    block = HeaderCheck(lambda timeout: 5).block(
        {"A": "b"}, "1", {"expected_last_subject_seq": 4, "expected_last_subject": "s.*", "expected_last_seq": 9}
    )
    assert Published.of("s.a", "text", block) == Published("s.a", b"text", ("Nats-Msg-Id", "1"), 9, 4, "s.*")
    assert Published.of("s.a", b"x", None) == Published("s.a", b"x", expected_on="s.a")


def test_where_to_look() -> None:
    assert position(AFTER_5) == {"seq": 6, "next_by_subj": ">"}
    assert position(ON_SUBJECT_5) == {"seq": 6, "next_by_subj": "s.a"}
    assert position(Published("s.a", after_on_subject=5, expected_on="s.*")) == {"seq": 6, "next_by_subj": "s.*"}
    assert position(Published("t", after_on_subject=5, expected_on="s.*")) == {"last_by_subj": "t"}
    assert position(WITH_ID) == {"last_by_subj": "s.a"}


# --- what a look says -----------------------------------------------------------------------------------------------


def stored(seq: int, data: bytes = b"other", /, **headers: str) -> Msg:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    message: dict[str, object] = {"subject": "s.a", "seq": seq, "data": base64.b64encode(data).decode()}
    if headers:
        message["hdrs"] = base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()
    return Msg(b"_INBOX.1", b"1", None, json.dumps({"message": message}).encode())


NOTHING = Msg(b"_INBOX.1", b"1", None, b'{"error":{"code":404,"err_code":10037,"description":"no message found"}}')
NO_LEADER = Msg(b"_INBOX.1", b"1", None, b'{"error":{"code":503,"err_code":10008,"description":"x"}}')
OURS = {"Nats_Msg_Id": "1"}
FOLLOWS_5 = {"Nats_Expected_Last_Subject_Sequence": "5"}
STORED, REFUSED, OPEN = "stored", "refused", "open"


@pytest.mark.parametrize("verdict", [Verdict.LOOK, Verdict.LISTEN, Verdict.DOUBT])
@pytest.mark.parametrize(
    ("published", "answer", "look", "listen", "doubt"),
    [
        (ID_ON_SUBJECT_5, stored(9, **OURS), STORED, STORED, STORED),
        (ID_ON_SUBJECT_5, stored(6), REFUSED, REFUSED, REFUSED),
        (ID_ON_SUBJECT_5, stored(9, **FOLLOWS_5), REFUSED, REFUSED, REFUSED),
        (ID_ON_SUBJECT_5, stored(9), REFUSED, REFUSED, OPEN),  # ours may have been there and be overwritten
        (ID_ON_SUBJECT_5, NOTHING, REFUSED, OPEN, OPEN),
        (ID_ON_SUBJECT_5, NO_LEADER, OPEN, OPEN, OPEN),
        (ON_SUBJECT_5, stored(6, b"x"), OPEN, OPEN, OPEN),  # the same bytes, and no id
        (ON_SUBJECT_5, stored(6), REFUSED, REFUSED, REFUSED),
        (AFTER_5, stored(6), REFUSED, REFUSED, REFUSED),
        (AFTER_5, stored(8), REFUSED, REFUSED, OPEN),
        (AFTER_5, NOTHING, OPEN, OPEN, OPEN),
        (WITH_ID, stored(3, **OURS), STORED, STORED, STORED),
        (WITH_ID, stored(3), REFUSED, OPEN, OPEN),  # where ours would be is not known
        (WITH_ID, NOTHING, REFUSED, OPEN, OPEN),
    ],
)
def test_conclusions(published: Published, answer: Msg, look: str, listen: str, doubt: str, verdict: Verdict) -> None:
    error = refusal(10071, "wrong last sequence: 3")
    inquiry = Inquiry(published, "S", verdict, error)
    found = inquiry.heard(answer)
    wanted = {Verdict.LOOK: look, Verdict.LISTEN: listen, Verdict.DOUBT: doubt}[verdict]
    if wanted is STORED:
        assert isinstance(found, PubAck)
        assert found.stream == "S"
    else:
        assert found is (error if wanted is REFUSED else None)


@pytest.mark.parametrize(
    ("verdict", "answer", "in_time", "refused"),
    [
        (Verdict.LOOK, None, True, True),
        (Verdict.LOOK, stored(6, b"x"), True, False),
        (Verdict.LISTEN, NOTHING, True, True),
        (Verdict.LISTEN, NOTHING, False, False),  # the timeout of the call ended it before
        (Verdict.LISTEN, stored(6, b"x"), True, False),
        (Verdict.LISTEN, None, True, False),
        (Verdict.DOUBT, NOTHING, True, False),
        (Verdict.DOUBT, None, True, False),
    ],
)
def test_the_last_word(verdict: Verdict, answer: Msg | None, in_time: bool, refused: bool) -> None:
    error = refusal(10071, "wrong last sequence: 3")
    inquiry = Inquiry(ON_SUBJECT_5, "S", verdict, error)
    if answer is not None:
        inquiry.heard(answer)
    end = inquiry.end(in_time)
    assert end is error if refused else isinstance(end, PublishUnknown)


def test_who_may_not_look_is_told_so() -> None:
    inquiry = Inquiry(ID_ON_SUBJECT_5, "S", Verdict.LISTEN, WrongLastSequence(400, 10164, "wrong last sequence"))
    assert inquiry.question() == ("STREAM.MSG.GET.S", {"seq": 6, "next_by_subj": "s.a"})
    inquiry.forbidden()
    assert inquiry.question() == ("DIRECT.GET.S", {"seq": 6, "next_by_subj": "s.a"})
    block = b"NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 8\r\n"
    direct = Msg(b"_INBOX.1", b"1", None, b"x", block + b"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\n\r\n")
    found = inquiry.heard(direct)
    assert isinstance(found, PubAck)
    assert found.seq == 8
    assert inquiry.heard(Msg(b"_INBOX.1", b"1", None, b"", b"NATS/1.0 404 Message Not Found\r\n\r\n")) is None
    inquiry.unanswered()
    inquiry.forbidden()
    assert inquiry.question() is None
    end = inquiry.end()
    assert isinstance(end, PublishUnknown)
    assert "may not look" in str(end)


def test_a_lost_link_ends_all_certainty() -> None:
    inquiry = Inquiry(AFTER_5, "S", Verdict.LOOK, refusal(10071, "wrong last sequence: 6"))
    inquiry.link_lost()
    assert inquiry.heard(stored(8)) is None
    assert isinstance(inquiry.end(), PublishUnknown)


def test_an_inquiry_lasts_longer_than_a_heartbeat_of_leaders() -> None:
    inquiry = Inquiry(PLAIN, "S", Verdict.LISTEN, refusal(10164))
    pauses = []
    while (pause := inquiry.pause()) is not None:
        pauses.append(pause)
    assert tuple(pauses) == PAUSES
    assert 2 < sum(pauses) < 5


def test_the_stream_that_refused() -> None:
    assert stream_of(b'{"error":{"code":400},"stream":"S","seq":0}') == "S"
    assert stream_of(b"[]") == stream_of(b"x") == stream_of(b'{"error":{}}') == ""


def test_nobody_can_ask_for_a_subject_that_json_cannot_hold() -> None:
    inquiry = Inquiry(Published("odd.\udc80", b"x"), "S", Verdict.DOUBT, why="no ack came")
    assert inquiry.question() is None
    assert inquiry.pause() is None
    assert "its subject is not UTF-8" in str(inquiry.end())
    # The place behind an expected sequence of the stream is asked for without the subject.
    assert Inquiry(Published("odd.\udc80", b"x", after=3), "S", Verdict.DOUBT).question() is not None


def test_what_passes() -> None:
    """No leader, a duplicate in process, a sequence that cannot be checked yet, overload."""
    for code in (10008, 10158, 10163, 10167):
        assert judge(refusal(code), PLAIN, in_doubt=True) is Verdict.AGAIN
