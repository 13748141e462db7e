"""The site as a reader has it: built from the sources, then opened in a headless Chromium. Full tier only.

The reference itself is tested by test_docs_api.py, what the texts name by test_docs_prose.py.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jsclient.testing import wait_until
from tools.docs import site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "docs"
PHONE = (390, 844)


@pytest.fixture(scope="module")
def built() -> Path:
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("sphinx is not installed (extra `docs`; `make test-full` installs it)")
    done = subprocess.run([sys.executable, "-m", "tools.docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # warnings and dead links are errors
    return BUILD


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url(built: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None or importlib.util.find_spec("selenium") is None:
        pytest.skip("no chromium, chromedriver or selenium here (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--window-size=1400,1000",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
    ):
        options.add_argument(argument)
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield made
    finally:
        made.quit()


def test_every_page_is_in_the_table_of_contents(built: Path) -> None:
    index = (built / "index.html").read_text(encoding="utf-8")
    pages = {name for name in site.sources().values() if name != "index.md"}
    assert [name for name in pages if f'href="{name.removesuffix(".md")}.html' not in index] == []


def test_search_finds(browser: Any, url: str) -> None:
    for words, page in (("dead letters", "workers"), ("publish_async", "api/jetstream"), ("fencing", "coordination")):
        browser.get(f"{url}/search.html?q={words.replace(' ', '+')}")
        found = wait_until(lambda: links(browser, "#search-results li a"), 20)

        def shown(page: str = page) -> bool:
            return any(f"/{page}.html" in link for link in links(browser, "#search-results li a"))

        wait_until(shown, 20)
        assert found


def links(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(link => link.href)"
    return list(browser.execute_script(script, selector))


def test_navigation_leads_to_a_page_and_its_links_to_the_reference(browser: Any, url: str) -> None:
    browser.get(f"{url}/index.html")
    assert "jsclient" in browser.title
    browser.find_element("css selector", ".sidebar-tree a[href^='jetstream.html']").click()
    wait_until(lambda: browser.current_url.endswith("/jetstream.html"), 20)
    assert any("api/errors.html#" in link for link in links(browser, "article a"))


def test_code_can_be_copied(browser: Any, url: str) -> None:
    from selenium.webdriver import ActionChains

    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": url}
    browser.execute_cdp_cmd("Browser.grantPermissions", allowed)
    browser.get(f"{url}/start.html")
    button = wait_until(lambda: browser.find_elements("css selector", ".highlight-python button.copybtn"), 20)[0]
    code = browser.find_element("css selector", ".highlight-python")
    browser.execute_script("arguments[0].scrollIntoView()", code)
    ActionChains(browser).move_to_element(code).move_to_element(button).click().perform()  # it is seen below the mouse
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, error => done(`${error}`))"
    assert wait_until(lambda: str(browser.execute_async_script(read)).startswith("import jsclient"), 20)


@pytest.mark.parametrize("page", ["index", "start", "performance", "api/jetstream", "from-go"])
def test_a_telephone_shows_the_whole_page(browser: Any, url: str, page: str, tmp_path: Path) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        browser.get(f"{url}/{page}.html")
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
        browser.save_screenshot(str(folder / f"{page.replace('/', '-')}.png"))
        assert wide <= PHONE[0] + 1, f"the page is {wide} points wide"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [1330, 1400, 1600])
def test_a_desktop_shows_the_contents_beside_the_page(browser: Any, url: str, width: int) -> None:
    before = browser.get_window_size()
    browser.set_window_size(width, 1000)
    try:
        browser.get(f"{url}/jetstream.html")
        script = "return document.querySelector('.toc-drawer').getBoundingClientRect().right"
        assert browser.execute_script(script) <= browser.execute_script("return document.documentElement.clientWidth")
    finally:
        browser.set_window_size(before["width"], before["height"])


def test_pictures_are_shown(browser: Any, url: str, tmp_path: Path) -> None:
    browser.get(f"{url}/performance.html")
    script = "return [...document.querySelectorAll('article img')].map(image => image.naturalWidth)"
    wait_until(lambda: (sizes := browser.execute_script(script)) and all(sizes), 20)
    for number, picture in enumerate(browser.find_elements("css selector", "article img")):
        file = Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"plot-{number}.png"
        assert picture.screenshot(str(file))
        assert file.stat().st_size > 10_000, "an empty picture is a few hundred bytes"


def test_there_is_a_dark_mode(browser: Any, url: str) -> None:
    browser.get(f"{url}/index.html")
    seen = set()
    for _ in range(3):  # light, dark, as the system wants it
        seen.add(browser.execute_script("return document.body.dataset.theme"))
        browser.execute_script("document.querySelector('.theme-toggle').click()")
    assert "dark" in seen
