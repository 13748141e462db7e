"""A run as a picture: every operation as a dot (when, how long, how it ended), and what was broken meanwhile."""

from __future__ import annotations

import math
from html import escape

from tests.chaos.history import NOT_STORED, OK, OPEN, REFUSED, UNKNOWN
from tests.chaos.run import Result

WIDTH, LEFT, TOP, PLOT, ROW = 1200, 90, 40, 420, 16
COLOURS = {OK: "#2a9d4a", REFUSED: "#2a6f97", NOT_STORED: "#e9a21f", UNKNOWN: "#d62828", OPEN: "#000000"}
FASTEST, SLOWEST = 0.0003, 60.0


def svg_of(result: Result) -> str:
    seconds = max([result.seconds, *(event.ended for event in result.events)])
    scale = (WIDTH - LEFT - 20) / seconds
    kinds = sorted({event.kind for event in result.events})
    height = TOP + PLOT + 40 + ROW * len(kinds)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(_title(result))}</text>',
    ]
    parts += _axes(seconds, scale)
    base = TOP + PLOT + 30
    for event in result.events:
        row = base + ROW * kinds.index(event.kind)
        x, wide = LEFT + event.began * scale, max(2.0, (event.ended - event.began) * scale)
        colour = "#888" if event.kind in ("cut", "reset", "stall", "deaf", "slow", "delay") else "#d62828"
        parts.append(f'<rect x="{x:.1f}" y="{TOP}" width="{wide:.1f}" height="{PLOT}" fill="{colour}" opacity="0.07"/>')
        parts.append(
            f'<rect x="{x:.1f}" y="{row}" width="{wide:.1f}" height="{ROW - 4}" fill="{colour}">'
            f"<title>{escape(event.text)}</title></rect>"
        )
    for number, kind in enumerate(kinds):
        parts.append(_label(LEFT - 6, base + ROW * number + 10, kind))
    for op in result.history.ops:
        end = min(op.ended, seconds)
        x = LEFT + op.invoked * scale
        parts.append(f'<circle cx="{x:.1f}" cy="{_y(end - op.invoked):.1f}" r="1.6" fill="{COLOURS[op.outcome]}"/>')
    return "\n".join([*parts, "</svg>\n"])


def _title(result: Result) -> str:
    findings = f"{len(result.of('client'))} wrong answers of the client"
    return f"nats-server {result.version}, seed {result.seed}: {len(result.history.ops)} operations, {findings}"


def _y(seconds: float) -> float:
    share = math.log(min(max(seconds, FASTEST), SLOWEST) / FASTEST) / math.log(SLOWEST / FASTEST)
    return TOP + PLOT * (1 - share)


def _axes(seconds: float, scale: float) -> list[str]:
    parts = []
    for value, name in ((0.001, "1 ms"), (0.01, "10 ms"), (0.1, "100 ms"), (1.0, "1 s"), (10.0, "10 s")):
        y = _y(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_label(LEFT - 6, y + 4, name))
    step = 10 if seconds <= 240 else 60
    for second in range(0, int(seconds) + 1, step):
        x = LEFT + second * scale
        parts.append(f'<text x="{x:.0f}" y="{TOP + PLOT + 16}" font-size="11" text-anchor="middle">{second} s</text>')
    for number, (outcome, colour) in enumerate(COLOURS.items()):
        x = WIDTH - 420 + 85 * number
        parts.append(f'<circle cx="{x}" cy="30" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 8}" y="34" font-size="11">{outcome}</text>')
    return parts


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="11" text-anchor="end">{escape(text)}</text>'
