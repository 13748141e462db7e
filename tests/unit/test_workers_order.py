"""What a member may start and when it must wait, without threads and sockets; and random histories of it."""

from __future__ import annotations

import random

from jsclient.workers.order import DONE_KEPT, Item, Order


def item(sequence: int, delivery: int, key: str = "a") -> Item:
    return Item(f"m{sequence}", sequence, delivery, key=key)


def started(order: Order, now: float = 0.0) -> list[int]:
    found = []
    while (begun := order.next(now)) is not None:
        found.append(begun.sequence)
    return found


def test_one_message_of_a_key_at_a_time_and_many_keys() -> None:
    order = Order()
    for number, key in enumerate("aabb", 1):
        assert order.arrived(item(number, number, key)) == "new"
    assert started(order) == [1, 3]
    order.finished(order.items[1])
    assert started(order) == [2]
    assert order.backlog == 1


def test_a_gap_in_the_deliveries_holds_everything_until_the_missing_one_is_here() -> None:
    order = Order()
    order.arrived(item(1, 1))
    assert started(order) == [1]
    order.arrived(item(2, 2))
    order.arrived(item(4, 4))  # 3 was sent down a link that broke
    order.finished(order.items[1])
    assert order.holding
    assert started(order) == []
    assert not order.is_complete(unacked=3, delivered=4)
    order.arrived(item(3, 5))
    assert order.is_complete(unacked=3, delivered=5)
    order.release()
    assert started(order) == [2]
    order.finished(order.items[2])
    assert started(order) == [3]


def test_gaps_of_a_shared_consumer_count_only_after_an_interruption() -> None:
    order = Order(None, shares=True)
    order.arrived(item(1, 7))
    assert not order.others, "nothing is known before the first delivery"
    order.arrived(item(5, 9, "b"))
    assert order.others
    assert started(order) == [1, 5]
    order.doubt()
    order.arrived(item(6, 10, "c"))
    assert started(order) == [6], "the numbers follow each other: nothing was lost"
    order.doubt()
    order.arrived(item(9, 12, "d"))
    assert started(order) == []
    order.arrived(item(8, 13, "d"))
    order.release()
    assert started(order) == [8]


def test_a_delivery_that_is_not_kept_has_its_number_all_the_same() -> None:
    order = Order()
    order.seen(1)
    order.arrived(item(2, 2))
    assert started(order) == [2]
    order.seen(4)
    assert order.holding


def test_what_was_given_back_is_handled_again() -> None:
    order = Order()
    order.arrived(item(1, 1))
    assert started(order) == [1]
    order.finished(order.items[1], again=True)
    assert order.arrived(item(1, 2)) == "new"
    assert started(order) == [1]


def test_a_consumer_that_others_used_before_begins_with_a_hold() -> None:
    order = Order(last=None)
    order.arrived(item(4, 9))
    assert started(order) == []
    order.arrived(item(2, 10))
    order.release()
    assert started(order) == [2]


def test_what_is_here_or_done_is_not_handled_again() -> None:
    order = Order()
    order.arrived(item(1, 1))
    order.arrived(item(2, 2, "b"))
    assert started(order) == [1, 2]
    order.finished(order.items[1])
    assert order.arrived(item(1, 3)) == "done"
    assert order.arrived(item(2, 4, "b")) == "known"
    again = Item("other", 1, 5, stored=7, key="a")  # the stream was made anew: another message with this sequence
    assert order.arrived(again) == "new"


def test_a_failed_message_keeps_its_place_through_a_hold() -> None:
    order = Order()
    for number in (1, 2, 3):
        order.arrived(item(number, number))
    assert started(order) == [1]
    order.failed(order.items[1], until=5.0)
    assert order.next_due() == 5.0
    order.hold()
    assert order.next_due() is None
    order.release()
    assert started(order, 4.9) == []
    assert started(order, 5.0) == [1]
    order.hold()
    order.failed(order.items[1], until=9.0)
    order.release()
    assert started(order, 8.0) == []
    assert started(order, 9.0) == [1]


def test_give_up_keeps_what_runs() -> None:
    order = Order()
    for number, key in enumerate("aab", 1):
        order.arrived(item(number, number, key))
    assert started(order) == [1, 3]
    assert [given.sequence for given in order.give_up()] == [2]
    assert sorted(order.items) == [1, 3]
    order.finished(order.items[1])
    assert started(order) == []


def test_one_by_one_waits_for_what_runs_and_goes_back_to_many() -> None:
    order = Order()
    order.arrived(item(1, 1, "a"))
    assert started(order) == [1]
    order.one_by_one(2)
    for number, key in ((2, "b"), (3, "a"), (4, "c"), (5, "d")):
        order.arrived(item(number, number, key))
    assert started(order) == []  # 1 runs, and 3 has its key
    order.finished(order.items[1])
    assert started(order) == [2]
    order.finished(order.items[2])
    assert started(order) == [3]
    assert order.alone
    order.finished(order.items[3])
    assert not order.alone
    assert started(order) == [4, 5]


def test_finished_messages_are_forgotten_in_the_end() -> None:
    order = Order()
    for number in range(1, DONE_KEPT + 10):
        order.arrived(item(number, number))
        assert started(order) == [number]
        order.finished(order.items[number])
    assert len(order.done) == DONE_KEPT


def test_random_histories_keep_each_key_in_order() -> None:
    for seed in range(200):
        history(random.Random(seed))


def history(chance: random.Random) -> None:
    """A model of the server: deliveries get lost and come again later; retries, holds and releases as in the pool."""
    keys = {sequence: chance.choice("abc") for sequence in range(1, 41)}
    unsent, unacked = list(keys), set[int]()
    lost: list[int] = []
    handled: dict[str, list[int]] = {key: [] for key in "abc"}
    order, delivery = Order(), 0
    running: dict[str, Item] = {}
    now = 0.0
    while unsent or unacked:
        now += 1.0
        what = chance.random()
        fresh = bool(unsent) and len(unacked) < 8
        if what < 0.4 and (fresh or lost):
            again = bool(lost) and (not fresh or chance.random() < 0.3)
            sequence = lost.pop(chance.randrange(len(lost))) if again else unsent.pop(0)
            delivery += 1
            unacked.add(sequence)
            if chance.random() < 0.15:
                lost.append(sequence)
            else:
                verdict = order.arrived(item(sequence, delivery, keys[sequence]))
                assert verdict == "new"
        elif what < 0.6 and order.missing and order.is_complete(len(unacked), delivery):
            order.release()
        elif what < 0.65 and not order.alone:
            order.one_by_one(chance.randrange(4))
        elif what < 0.85 and (begun := order.next(now)) is not None:
            assert keys[begun.sequence] not in running, "two messages of a key at once"
            running[keys[begun.sequence]] = begun
        elif running:
            key = chance.choice(sorted(running))
            over = running.pop(key)
            if chance.random() < 0.2:
                order.failed(over, now + chance.choice([0, 3]))
            else:
                handled[key].append(over.sequence)
                order.finished(over)
                unacked.discard(over.sequence)
    for key, sequences in handled.items():
        assert sequences == sorted(sequences) == [sequence for sequence in keys if keys[sequence] == key]


def test_everything_is_here_when_the_last_delivery_is() -> None:
    order = Order()
    order.arrived(item(1, 1))
    assert order.is_complete(unacked=1, delivered=1)
    assert not order.is_complete(unacked=1, delivered=2), "the second one is on its way, and the first acked meanwhile"
    assert not order.is_complete(unacked=2, delivered=1)
