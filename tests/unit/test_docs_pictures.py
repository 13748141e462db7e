"""The pictures of the site are those that tools/docs/pictures.py draws, are well-formed, and say what they show."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tools.docs import pictures


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture(name: str) -> None:
    text = (pictures.STATIC / f"{name}.svg").read_text(encoding="utf-8")
    assert text == pictures.PICTURES[name]().svg(), "run: python -m tools.docs.pictures"
    root = ET.fromstring(text)
    assert len(root.attrib["aria-label"].split()) > 5
    width, height = map(int, root.attrib["viewBox"].split()[2:])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, w, h = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
