"""The pictures of the site are those that tools/docs/pictures.py draws, are well-formed, and say what they show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools.docs import pictures

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / "tools" / "docs" / "pages").glob("*.md"), *(ROOT / "jsclient").glob("*/README.md")]
NAMESPACE = "{http://www.w3.org/2000/svg}"
IMAGE = re.compile(r"!\[([^\]]*)\]\([./]*(?:tools/docs/)?static/(\w+)\.svg\)")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture(name: str) -> None:
    text = (pictures.STATIC / f"{name}.svg").read_text(encoding="utf-8")
    assert text == pictures.PICTURES[name]().svg(), "run: python -m tools.docs.pictures"
    root = ET.fromstring(text)
    assert len(root.attrib["aria-label"].split()) > 5
    width, height = map(int, root.attrib["viewBox"].split()[2:])
    for box in root.iter(f"{NAMESPACE}rect"):
        x, y, w, h = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    for element in root.iter(f"{NAMESPACE}text"):
        x, kind = float(element.attrib["x"]), element.attrib["class"]
        wide = len("".join(element.itertext())) * (7.8 if kind == "mono" else 6.3 if "small" in kind else 7.3)
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[element.attrib.get("text-anchor", "start")]
        assert 0 <= left <= left + wide <= width, "".join(element.itertext())
        assert 0 < float(element.attrib["y"]) <= height


def test_each_picture_stands_on_a_page_with_an_alternative_text() -> None:
    found = [image for page in PAGES for image in IMAGE.findall(page.read_text(encoding="utf-8"))]
    assert {name for _, name in found} == set(pictures.PICTURES)
    assert len(pictures.PICTURES) >= 12
    assert all(len(words.split()) > 5 for words, _ in found)


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in pictures.STATIC.glob("*.svg")} == set(pictures.PICTURES)


def test_a_picture_of_speed_has_the_numbers_of_the_page() -> None:
    text = pictures.speed().svg()
    table = pictures.PERFORMANCE.read_text(encoding="utf-8").split("| 128 bytes |")[1].split("\n\n")[0]
    costs = re.findall(r"/s, ([\d.]+) µs", table)
    assert costs
    assert [cost for cost in costs if f">{cost}<" not in text] == []
