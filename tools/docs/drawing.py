"""Helpers for the pictures of the site: plain SVG that follows the light or dark mode of the reader."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping

STYLE = """<style>
text { font: 14px system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e } .bold { font-weight: 600 }
.box { fill: #f6f8fa; stroke: #8c959f } .main { fill: #dbeafe; stroke: #2a6f97 } .bad { fill: #ffebe9; stroke: #cf222e }
.good { fill: #dafbe1; stroke: #1a7f37 } .line { stroke: #57606a; fill: none }
.tip { fill: #57606a } .grid { stroke: #d0d7de }
.mono { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre }
.alarm { fill: #cf222e; font-weight: 600 } .well { fill: #1a7f37; font-weight: 600 }
.one { fill: #0969da; font-weight: 600 } .two { fill: #bc4c00 } .three { fill: #1a7f37 } .four { fill: #8250df }
.five { fill: #cf222e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9da7b1 } .box { fill: #161b22; stroke: #545d68 }
.main { fill: #10304a; stroke: #58a6ff }
.bad { fill: #3c1618; stroke: #f85149 } .good { fill: #12261e; stroke: #3fb950 }
.line { stroke: #9da7b1 } .tip { fill: #9da7b1 } .grid { stroke: #30363d }
.alarm { fill: #ff7b72 } .well { fill: #3fb950 }
.one { fill: #58a6ff } .two { fill: #ffa657 } .three { fill: #3fb950 } .four { fill: #d2a8ff } .five { fill: #ff7b72 } }
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
        self.frame(x, y, width, height, kind)
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

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        self._parts.append(f'<path class="{kind}" d="M{x1} {y1}L{x2} {y2}"/>')

    def way(self, *corners: tuple[float, float]) -> None:
        """An arrow around corners."""
        path = "L".join(f"{x} {y}" for x, y in corners)
        self._parts.append(f'<path class="line" marker-end="url(#tip)" d="M{path}"/>')

    def dot(self, x: float, y: float, kind: str) -> None:
        self._parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="5"/>')

    def cells(self, x: float, y: float, width: float, words: Iterable[str], kinds: Iterable[str]) -> None:
        """A row of small boxes, such as the messages of a stream."""
        for place, (word, kind) in enumerate(zip(words, kinds, strict=True)):
            self.box(x + place * width, y, width - 6, 34, word, kind=kind)

    def frame(self, x: float, y: float, width: float, height: float, kind: str = "box") -> None:
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')

    def mono(self, x: float, y: float, line: str, marks: Mapping[str, str]) -> None:
        shown = html.escape(line)
        for word, kind in marks.items():
            shown = shown.replace(html.escape(word), f'<tspan class="{kind}">{html.escape(word)}</tspan>')
        self._parts.append(f'<text class="mono" x="{x}" y="{y}" xml:space="preserve">{shown}</text>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>"]) + "\n"


def terminal(says: str, text: str, marks: Mapping[str, str]) -> Picture:
    """A window of 80 columns; `marks` gives a kind to the important lines and words."""
    lines = [row[at : at + 80] for row in text.splitlines() for at in range(0, max(len(row), 1), 80)]
    p = Picture(680, 50 + 19 * len(lines), says)
    p.frame(4, 4, 672, 42 + 19 * len(lines))
    for place, kind in enumerate(("five", "two", "three")):
        p.dot(24 + 18 * place, 20, kind)
    for number, line in enumerate(lines):
        p.mono(20, 50 + 19 * number, line, marks)
    return p
