"""Draw the pictures of the site: `python -m tools.docs.pictures` writes tools/docs/static/*.svg.

Plain SVG that follows the light or dark mode of the reader. Each picture has a text that says what it shows.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path

STATIC = Path(__file__).with_name("static")
STYLE = """<style>
text { font: 14px system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e } .bold { font-weight: 600 }
.box { fill: #f6f8fa; stroke: #8c959f } .main { fill: #dbeafe; stroke: #2a6f97 } .bad { fill: #ffebe9; stroke: #cf222e }
.good { fill: #dafbe1; stroke: #1a7f37 } .line { stroke: #57606a; fill: none }
.tip { fill: #57606a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9da7b1 } .box { fill: #161b22; stroke: #545d68 }
.main { fill: #10304a; stroke: #58a6ff }
.bad { fill: #3c1618; stroke: #f85149 } .good { fill: #12261e; stroke: #3fb950 }
.line { stroke: #9da7b1 } .tip { fill: #9da7b1 } }
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0L10 5L0 10z"/></marker></defs>"""


class Picture:
    """A sheet to draw on; coordinates are pixels from the top left."""

    def __init__(self, width: int, height: int, says: str) -> None:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        self._parts = [f'{head} aria-label="{html.escape(says)}">', f"<title>{html.escape(says)}</title>", STYLE]

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> None:
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, title: str, below: str = "", kind: str = "box"
    ) -> None:
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')
        middle = x + width / 2
        self.text(middle, y + height / 2 + (-2 if below else 5), title, "bold")
        if below:
            self.text(middle, y + height / 2 + 16, below, "small")

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, words: str = "", up: float = 6, right: float = 0
    ) -> None:
        self._parts.append(f'<path class="line" marker-end="url(#tip)" d="M{x1} {y1}L{x2} {y2}"/>')
        if words:
            self.text((x1 + x2) / 2 + right, (y1 + y2) / 2 - up, words, "small")

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._parts.append(f'<path class="line" d="M{x1} {y1}L{x2} {y2}"/>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>"]) + "\n"


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
        p.arrow(170, 67 + row * 60, 245, 127)
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
    p.box(420, 97, 430, 66, "NotStored", "publish again; it cannot be stored twice", "bad")
    p.box(420, 184, 430, 66, "UnknownOutcome", "publish again with the same msg_id, or look", "bad")
    p.arrow(200, 115, 420, 45, "the server confirms", 22, -44)
    p.arrow(200, 130, 420, 130, "refused, or never sent")
    p.arrow(200, 147, 420, 215, "sent, but no answer in time", -30, -44)
    return p


def redelivery() -> Picture:
    says = "A message without an ack is delivered again after ack_wait, a nak'd one after its delay."
    p = Picture(860, 230, says)
    p.box(10, 80, 150, 60, "message", "in the stream", "main")
    p.box(270, 80, 170, 60, "your handler", "delivery 1, 2, 3 ...")
    p.box(620, 10, 230, 54, "ack", "done; never delivered again", "good")
    p.box(620, 83, 230, 54, "nak, or an exception", "again after the delay")
    p.box(620, 156, 230, 54, "no answer, or a crash", "again after ack_wait")
    p.arrow(160, 110, 270, 110, "deliver")
    p.arrow(440, 95, 620, 40)
    p.arrow(440, 110, 620, 110)
    p.arrow(440, 125, 620, 180)
    p.line(735, 210, 735, 222)
    p.line(735, 222, 355, 222)
    p.arrow(355, 222, 355, 142)
    p.text(500, 216, "delivered again", "small")
    p.text(85, 175, "after the last attempt a pool", "small")
    p.text(85, 192, "stores a dead letter", "small")
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
    p.arrow(330, 135, 210, 175, "what is finished?", -16, 26)
    p.arrow(210, 185, 640, 185, "only what is missing")
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
    says = "Layers of the code, from bytes to Spark. Each layer imports only layers below it."
    p = Picture(860, 330, says)
    rows = (
        ("protocol", "bytes to events; no sockets"),
        ("connection", "links, threads, reconnect, requests"),
        ("jetstream", "streams, consumers, publishing, acks"),
        ("keyvalue, objectstore, services, workers", "built on JetStream"),
        ("groups, coordination, arrow, backup", "built on these"),
        ("spark, cli, testing", "what users start"),
    )
    for row, (name, below) in enumerate(reversed(rows)):
        width = 420 + row * 76
        p.box(430 - width / 2, 6 + row * 54, width, 46, name, below, "main" if name == "connection" else "box")
    return p


PICTURES: dict[str, Callable[[], Picture]] = {
    function.__name__: function
    for function in (how_it_works, concepts, outcomes, redelivery, exactly_once, hand_over, layers)
}


def main() -> None:
    STATIC.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (STATIC / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
