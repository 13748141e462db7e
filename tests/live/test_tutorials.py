"""The tutorials are followed step by step: each program, each command, and each output that the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import tutorials

from jsclient.testing import NatsServer

PAGES = Path(__file__).parents[2] / "tools" / "docs" / "pages"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", ["start", "service", "troubleshooting"])
def test_a_tutorial(page: str, tmp_path: Path) -> None:
    with NatsServer() as server:

        def answer(prompt: str) -> str:
            if prompt.startswith("Stop the server"):
                server.stop()
            elif prompt.startswith("Start the server"):
                server.start()
            return ""

        shell = tutorials.Shell(tmp_path, server.url)
        try:
            for number, step in enumerate(tutorials.steps(PAGES / f"{page}.md"), 1):
                if isinstance(step, tutorials.Command):
                    shell.expect(step)
                elif step.file:
                    (tmp_path / step.file).write_text(step.code.replace(tutorials.USUAL, server.url))
                else:
                    printed = tutorials.run(step, f"<{page}.md program {number}>", server.url, answer)
                    assert step.output is not None, f"program {number} shows no output"
                    tutorials.check(f"program {number}", step.output, printed)
        finally:
            shell.close()
