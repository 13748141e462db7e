"""Draw the pictures of the site: `python -m tools.docs.pictures` writes tools/docs/static/*.svg.

Each picture has a text that says what it shows. The numbers of the speed pictures come from the page on performance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

from tools.docs.drawing import Picture, terminal

STATIC = Path(__file__).with_name("static")
PERFORMANCE = Path(__file__).with_name("pages") / "performance.md"


def how_it_works() -> Picture:
    says = "Your threads share one connection; nats-server stores the stream and tracks the consumer."
    p = Picture(860, 300, says)
    p.box(10, 20, 200, 60, "your threads", "publish() waits until stored")
    p.box(10, 120, 200, 60, "worker pool", "your handler in N threads")
    p.box(10, 220, 200, 60, "Spark executors", "one connection per process")
    p.box(310, 85, 230, 130, "Connection", "one reader thread, no event loop", "main")
    p.box(640, 20, 210, 60, "stream", "stores and numbers messages")
    p.box(640, 120, 210, 60, "consumer", "what was delivered and acked")
    p.box(640, 220, 210, 60, "second stream", "dead letters")
    p.arrow(210, 50, 310, 110, "publish", 8, 18)
    p.arrow(310, 142, 210, 142, "messages")
    p.arrow(210, 160, 310, 160, "ack, nak", -16)
    p.arrow(210, 250, 310, 195)
    p.arrow(540, 110, 640, 55, "store", 10, -12)
    p.arrow(640, 150, 540, 150, "deliver")
    p.arrow(540, 190, 640, 245)
    p.text(745, 297, "nats-server", "small")
    return p


def concepts() -> Picture:
    says = "A stream stores the messages of its subjects in order; each consumer keeps its own position."
    p = Picture(860, 250, says)
    p.text(90, 30, "publishers", "small")
    for row, subject in enumerate(("mail.new", "mail.sent", "mail.new")):
        p.box(10, 45 + row * 60, 160, 44, subject, kind="box")
        p.arrow(170, 67 + row * 60, 245, 117 + row * 10)
    p.text(415, 30, "stream MAIL, subjects mail.>", "small")
    for number in range(1, 6):
        p.box(250 + (number - 1) * 66, 100, 60, 54, str(number), kind="main" if number < 4 else "box")
    p.text(730, 30, "consumers", "small")
    p.box(640, 45, 200, 54, "reader", "acked up to 3")
    p.box(640, 155, 200, 54, "archive", "acked up to 1")
    p.arrow(580, 115, 640, 75)
    p.arrow(580, 140, 640, 180)
    p.text(415, 190, "the stream keeps a message until a limit of its configuration is reached", "small")
    p.text(850, 235, "a message without an ack is delivered again", "small", "end")
    return p


def outcomes() -> Picture:
    says = "A publish returns if the message is stored, or raises NotStored or UnknownOutcome."
    p = Picture(860, 260, says)
    p.box(10, 95, 190, 70, "js.publish()", "retries within its timeout", "main")
    p.box(420, 10, 430, 66, "returns: stored", "the server has confirmed it", "good")
    p.box(420, 97, 430, 66, "NotStored", "nothing was stored: publish it again", "bad")
    p.box(420, 184, 430, 66, "UnknownOutcome", "publish again with the same msg_id, or look", "bad")
    p.arrow(200, 115, 420, 45, "the server confirms", 22, -44)
    p.arrow(200, 130, 420, 130, "refused, or never sent")
    p.arrow(200, 147, 420, 215, "sent, but no answer in time", -30, -44)
    return p


def redelivery() -> Picture:
    says = "A message without an ack is delivered again after ack_wait or backoff, a nak'd one after its delay."
    p = Picture(860, 240, says)
    p.box(10, 80, 150, 60, "message", "in the stream", "main")
    p.box(270, 80, 170, 60, "your handler", "delivery 1, 2, 3 ...")
    p.box(610, 10, 230, 54, "ack", "done", "good")
    p.box(610, 83, 230, 54, "nak", "again after the delay")
    p.box(610, 156, 230, 54, "no answer, or a crash", "again after ack_wait, or backoff")
    p.arrow(160, 110, 270, 110, "deliver")
    p.arrow(440, 95, 610, 40)
    p.arrow(440, 110, 610, 110)
    p.arrow(440, 125, 610, 180)
    p.line(725, 210, 725, 228)
    p.way((840, 110), (852, 110), (852, 228), (355, 228), (355, 142))
    p.text(500, 222, "delivered again", "small")
    return p


def retries() -> Picture:
    says = "A worker pool with attempts=3 and backoff=[1, 10]: two retries, then a dead letter."
    p = Picture(860, 250, says)
    p.text(10, 18, "WorkerPool(consumer, handle, attempts=3, backoff=[1, 10], dead_letter=...)", "small", "start")
    for place, number in enumerate((1, 2, 3)):
        left = 10 + place * 215
        p.box(left, 75, 130, 56, f"delivery {number}", "your handler raises", "bad")
        p.arrow(left + 65, 131, left + 65, 180)
        if number < 3:
            p.arrow(left + 130, 103, left + 215, 103, f"nak, {'10 s' if place else '1 s'}")
    p.arrow(570, 103, 650, 103, "attempts")
    p.text(610, 120, "used up", "small")
    p.box(650, 75, 200, 56, "dead letter", "stored in another stream", "bad")
    p.arrow(750, 131, 750, 180)
    p.way((75, 75), (75, 45), (750, 45), (750, 73))
    p.text(412, 38, "Reject at any delivery: no retry", "small")
    p.text(85, 158, "or returns", "small", "start")
    p.box(10, 182, 560, 56, "ack", "the message is done", "good")
    p.box(650, 182, 200, 56, "term", "after the letter is stored")
    return p


def exactly_once() -> Picture:
    says = "After a crash Spark replays a batch; the journal lists its finished partitions."
    p = Picture(860, 240, says)
    p.box(10, 20, 200, 60, "batch 7, first try", "partition 0 done, 1 crashed", "bad")
    p.box(10, 150, 200, 60, "batch 7, replayed", "same rows, same batch")
    p.box(330, 85, 210, 66, "journal", "key-value bucket: 7/0 finished", "main")
    p.box(640, 20, 210, 60, "stream", "rows of partition 0, some of 1", "box")
    p.box(640, 150, 210, 60, "stream", "each row once", "good")
    p.arrow(210, 50, 640, 50, "write")
    p.arrow(210, 65, 330, 105, "finished: 7/0", 8, 14)
    p.arrow(330, 135, 210, 165, "what is finished?", 16, -30)
    p.arrow(210, 185, 640, 185, "reads the stored ids back, writes what is missing")
    return p


def hand_over() -> Picture:
    says = "Three processes share six partitions; after a crash the others take over."
    p = Picture(860, 230, says)
    for column, (title, rows) in enumerate(
        (("before", ("0 1", "2 3", "4 5")), ("after a crash of B", ("0 1 2", "", "4 5 3")))
    ):
        left = 20 + column * 440
        p.text(left + 190, 24, title, "bold")
        for row, (name, held) in enumerate(zip("ABC", rows, strict=True)):
            gone = not held
            p.box(left, 40 + row * 62, 140, 50, f"process {name}", "gone" if gone else "", "bad" if gone else "box")
            for index, partition in enumerate(held.split()):
                moved = column == 1 and index == 2
                p.box(left + 160 + index * 76, 40 + row * 62, 66, 50, partition, kind="good" if moved else "main")
    p.arrow(405, 127, 445, 127)
    return p


def layers() -> Picture:
    says = "Layers of the code, from bytes to Spark. Each imports only its own row and the rows below."
    p = Picture(860, 440, says)
    rows = (
        ("protocol", "bytes to events; no socket, thread or clock"),
        ("errors, options, transport", "exceptions, settings, byte streams"),
        ("connection", "links, threads, reconnect, requests, subscriptions"),
        ("jetstream", "streams, consumers, publishing, acks"),
        ("keyvalue, objectstore, services, workers, system, backup, monitor, arrow", "built on JetStream"),
        ("exactly, planning, coordination", "batches: each row once; read plans; locks and leaders"),
        ("groups, spark, testing", "groups of processes, the Spark adapter, servers for tests"),
        ("command line", "jsclient, python -m jsclient"),
    )
    for row, (name, below) in enumerate(reversed(rows)):
        width = 520 + row * 45
        p.box(430 - width / 2, 6 + row * 54, width, 46, name, below, "main" if name == "connection" else "box")
    return p


def threads() -> Picture:
    says = "Frames go through the outbox to the link; the reader thread fills mailboxes, and workers empty them."
    p = Picture(860, 350, says)
    p.box(10, 20, 210, 60, "your threads", "publish, request, ack", "good")
    p.box(290, 20, 210, 60, "outbox", "a queue of complete frames")
    p.box(740, 20, 110, 220, "link", "to nats-server", "main")
    p.arrow(220, 50, 290, 50, "frame")
    p.arrow(500, 50, 740, 50, "the thread with the send lock")
    p.text(620, 66, "sends all queued frames", "small")
    p.box(560, 170, 130, 60, "reader thread", "receives, parses")
    p.box(290, 170, 210, 60, "mailboxes", "one for each subscription")
    p.box(10, 170, 210, 60, "worker threads", "run your handlers", "good")
    p.arrow(740, 200, 690, 200)
    p.arrow(560, 200, 500, 200, "groups")
    p.arrow(290, 200, 220, 200, "message")
    p.way((625, 170), (625, 125), (115, 125), (115, 82))
    p.text(370, 118, "the reply to a call that waits", "small")
    p.text(10, 270, "also:", "small", "start")
    p.box(10, 280, 270, 56, "flusher", "sends buffered data, watches timeouts")
    p.box(295, 280, 270, 56, "connector", "makes the next link")
    p.box(580, 280, 270, 56, "events", "runs callbacks of the connection", "good")
    return p


def reconnect() -> Picture:
    says = "After a loss the first attempt follows within 0.1 s, later ones after random delays of up to 4 s."
    p = Picture(860, 250, says)
    p.box(10, 60, 190, 50, "connected", kind="main")
    p.box(200, 60, 440, 50, "", kind="bad")
    p.text(420, 52, "no link", "bold")
    p.box(640, 60, 210, 50, "connected", "to this or another server", kind="main")
    for x, words in ((245, "1"), (285, "2"), (345, "3"), (455, "4"), (640, "5")):
        p.line(x, 60, x, 124)
        p.text(x, 138, words, "small")
    p.text(420, 156, "attempts: the first within 0.1 s, then after up to 0.05 s, doubled each time up to 4 s", "small")
    p.text(430, 22, "on_error, for each failed attempt", "small")
    for x, words in ((200, "on_disconnected"), (640, "on_reconnected")):
        p.text(x, 22, words, "small")
        p.arrow(x, 28, x, 58)
    p.box(200, 180, 440, 56, "your calls", "wait for the next link, within their timeouts")
    p.box(10, 180, 175, 56, "subscriptions", "stay open")
    p.box(655, 180, 195, 56, "sent again", "subscriptions, queued data", "good")
    return p


def window() -> Picture:
    says = "When fewer than half of the window are requested or buffered, the client requests more."
    p = Picture(860, 240, says)
    rows = (
        ("messages() begins", "r" * 10, "pull 500"),
        ("some have arrived", "b" * 6 + "r" * 4, "your program has not taken any"),
        ("you took half", "t" * 5 + "b" * 5, "250 left: no request yet"),
        ("one message later", "t" * 5 + "b" * 5 + "r" * 5, "249 left: pull 251 more"),
    )
    kinds = {"r": "box", "b": "main", "t": "good"}
    for row, (name, parts, then) in enumerate(rows):
        y = 12 + row * 46
        p.text(10, y + 22, name, "", "start")
        p.cells(190, y, 30, " " * len(parts), [kinds[part] for part in parts])
        p.text(850, y + 22, then, "small", "end")
    for x, kind, words in ((190, "box", "requested"), (310, "main", "in the buffer"), (450, "good", "taken by you")):
        p.frame(x, 206, 22, 22, kind)
        p.text(x + 30, 221, words, "small", "start")
    p.text(850, 221, "a box: 50 messages; max_messages=500", "small", "end")
    return p


def ordered() -> Picture:
    says = "An ordered consumer that misses a message is re-created right after the last one delivered."
    p = Picture(860, 240, says)
    left, step = 250, 76
    p.text(10, 34, "stream", "bold", "start")
    p.cells(left, 12, step, "12345678", ["box"] * 8)
    p.text(10, 88, "first consumer", "bold", "start")
    p.text(10, 105, "4 is lost: 5 does not follow 3", "small", "start")
    p.cells(left, 72, step, "12345", ["main"] * 3 + ["bad"] * 2)
    p.text(10, 148, "next consumer", "bold", "start")
    p.text(10, 165, "starts at 4", "small", "start")
    p.cells(left + 3 * step, 132, step, "45678", ["main"] * 5)
    p.way((left + 4.5 * step, 106), (left + 4.5 * step, 119), (left + 3.4 * step, 119), (left + 3.4 * step, 130))
    p.text(left + 5 * step, 122, "re-created", "small", "start")
    p.text(10, 208, "your loop", "bold", "start")
    p.text(10, 225, "each message once, in order", "small", "start")
    p.cells(left, 192, step, "12345678", ["good"] * 8)
    return p


def mirror() -> Picture:
    says = "The handle of a mirror reads the copy and writes to the origin; the copy follows after a moment."
    p = Picture(860, 200, says)
    p.box(10, 70, 170, 60, "your program", "kv = the mirror")
    p.box(330, 10, 220, 60, "bucket rates", "the origin stores the value", "main")
    p.box(330, 130, 220, 60, "bucket copy", "the mirror", "good")
    p.arrow(180, 85, 330, 45, "put, update, delete", 16, -22)
    p.arrow(330, 155, 180, 115, "get, keys, watch", -24, -22)
    p.arrow(440, 70, 440, 130)
    p.text(452, 104, "the server copies each change", "small", "start")
    p.text(570, 156, "may be in another domain;", "small", "start")
    p.text(570, 173, "may not have your last write yet", "small", "start")
    return p


def speed() -> Picture:
    return _dots("| 128 bytes |", ["jsclient", "nats-py", "nats.go", "nats.c"], (0.1, 1, 10, 100))


def speed_python() -> Picture:
    return _dots(
        "| case | jsclient |", ["jsclient", "nats-py", "natsio 1.0.1", "mq-bridge 1.2", "redis-py 8.1"], (1, 10, 100)
    )


def _dots(head: str, clients: list[str], ticks: tuple[float, ...]) -> Picture:
    """Microseconds of CPU per message, on a log axis, from the table of the page on performance that begins so."""
    rows = _measured(head, clients)
    won = {
        name: [float(costs[0]) < float(costs[place]) for _, costs in rows if costs[place]]
        for place, name in enumerate(clients)
    }
    score = ", ".join(f"{name} in {sum(won[name])} of {len(won[name])}" for name in clients[1:])
    says = f"CPU per message on a log axis. jsclient needs less than {score} rows."
    p = Picture(860, 96 + 24 * len(rows), says)
    p.text(10, 18, "µs of CPU per message, on a log axis; less is better", "small", "start")
    low, high = math.log10(ticks[0]) - 0.2, math.log10(ticks[-1]) + 0.6

    def across(cost: float) -> float:
        return 220 + (math.log10(cost) - low) / (high - low) * 290

    def column(place: int) -> float:
        return 850 - 340 / len(clients) * (len(clients) - 1 - place)

    for tick in ticks:
        p.line(across(tick), 50, across(tick), 54 + 24 * len(rows), "grid")
        p.text(across(tick), 44, f"{tick:g}", "small")
    kinds = ("one", "two", "three", "four", "five")[: len(clients)]
    for place, (name, kind) in enumerate(zip(clients, kinds, strict=True)):
        p.text(column(place), 44, name.split()[0], f"small {kind}", "end")
    for row, (case, costs) in enumerate(rows):
        y, least = 70 + 24 * row, min(filter(None, costs), key=float)
        p.text(10, y, case, "small", "start")
        for place, cost in enumerate(costs):
            kind = "bold" if cost == least else "alarm" if place == 0 else "small"
            p.text(column(place), y, cost or "-", kind, "end")
            if cost:
                p.dot(across(float(cost)), y - 4, kinds[place])
    p.text(10, 70 + 24 * len(rows), "bold: the least of a row; red: jsclient loses the row", "small", "start")
    p.text(10, 88 + 24 * len(rows), f"jsclient needs less than {score} rows", "small", "start")
    return p


def _measured(head: str, clients: list[str]) -> list[tuple[str, list[str]]]:
    """(case, µs of CPU of each client, empty: not measured), without the rows of objects."""
    table = head + PERFORMANCE.read_text(encoding="utf-8").split(head, 1)[1].split("\n\n", 1)[0]
    names, _, *rows = ([cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines())
    places = [names.index(client) for client in clients]
    last = re.compile(r"[\d.]+(?= µs$|$)")
    return [
        (row[0], [found[0] if (found := last.search(row[place])) else "" for place in places])
        for row in rows
        if not row[0].startswith("object")
    ]


def top() -> Picture:
    text = """$ jsclient top --once
STREAMS
STREAM  TROUBLE  MESSAGES      BYTES  IN/S  CONSUMERS  LATELY
EVENTS              2,500  150.3 KiB     0          3  ▁
COPY                   10    1.1 KiB     0          0  ▁
ORDERS                 10      457 B     0          2  ▁
KV_b                    2   34.9 KiB     0          0  ▁
OBJ_o                   2   35.3 KiB     0          0  ▁
CONSUMERS
CONSUMER        TROUBLE                    LAG  UNACKED  DONE/S  EMPTY IN  PULLS
EVENTS/mailer   stuck: acks are missing  2,500       20       0         -      0
EVENTS/archive  nobody pulls             1,600        0       0         -      0
ORDERS/c        nobody pulls                 6        0       0         -      0
EVENTS/nightly  paused                   2,500        0       0         -      0
ORDERS/w                                     1        1       0         -      0"""
    marks = dict.fromkeys(("stuck: acks are missing", "nobody pulls", "paused"), "alarm")
    says = "jsclient top in a terminal: of five consumers one is stuck, two have no reader, and one is paused."
    return terminal(says, text, marks)


def check() -> Picture:
    text = """$ jsclient check --user few --password p
ok    connection: nats://127.0.0.1:4222, NCXNK3GRBFZUZRSGN5HDRYQXWNG6M3H5GBAZDRYUHLGV7FRBNYQHEFIG 2.15.1
ok    max payload: 1.0 MiB
ok    round trip: 0.10 ms
ok    inbox: answers reach us
ok    JetStream: 0 streams, 0 consumers, API level 5
ok    clock: 0.000 s apart
ok    duplicate window: the stream recognizes a repeated message id
ok    pull: two messages arrived
fail  acks: the server does not permit this user to publish to '$JS.ACK.JSCLIENT_CHECK_gH7I1uDi12fwAy2qonTu5f...
      -> permit publish on $JS.ACK.>, and import it with $JS.API"""
    marks = {"ok    ": "well", "fail  ": "alarm", "permit publish on $JS.ACK.>": "alarm"}
    says = "jsclient check in a terminal: eight lines are ok, and one names the permission that is missing."
    return terminal(says, text, marks)


PICTURES: dict[str, Callable[[], Picture]] = {
    function.__name__: function
    for function in (
        how_it_works,
        threads,
        concepts,
        outcomes,
        redelivery,
        retries,
        exactly_once,
        hand_over,
        layers,
        reconnect,
        window,
        ordered,
        mirror,
        speed,
        speed_python,
        top,
        check,
    )
}


def main() -> None:
    STATIC.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (STATIC / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
