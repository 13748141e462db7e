"""A private nats-server process with its own port and store, removed when the test is over. Standard library only."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from jsclient.testing import watcher
from jsclient.testing.find import find_server, server_version
from jsclient.testing.wait import wait_until

#: A server writes its ports file within about 50 ms; a loaded machine gets much more time.
START_TIMEOUT = 20.0
#: SIGTERM ends a server within milliseconds; after these seconds it gets SIGKILL.
STOP_TIMEOUT = 8.0

#: Another socket may have a free port when the server wants to listen on it. That is an outgoing connection, or the
#: server's own monitor: it gets any port first, possibly the one that the server had before a restart.
START_TRIES = 3
TAKEN = "address already in use"

RELOAD_TIMEOUT = 20.0
RELOADED = re.compile("Reloaded server configuration|Failed to reload")

#: Strong references, so leak checks find a forgotten server, and it ends at exit.
_running: set[NatsServer] = set()


def running_servers() -> list[NatsServer]:
    """The servers started by this process that still run. Use it for leak checks."""
    return [server for server in list(_running) if server.running]


class NatsServer:
    """One nats-server on 127.0.0.1, started by `start()` or `with`.

        with NatsServer() as server, jsclient.connect(server.url) as nc:
            nc.publish("greet", b"hello")

    `config` is the text of a configuration file, which is merged with the settings of the other arguments. `port=-1`
    lets the server choose a port, which a restart keeps. Without `store_dir` the store is a temporary folder. `stop()`
    keeps it, so `start()` finds its data again; `close()` and the end of `with` remove it. Not thread-safe.

    The server and its temporary folder are gone soon after this process has ended, also if somebody has killed it.

    `jetstream=False` switches JetStream off. `args` are added to the command line. `name` is the server's name.

    Attributes:
        binary: The program.
        config: The configuration as given.
        jetstream: True if it has JetStream.
        args: Arguments added to the command line.
        name: Its name.
        host: 127.0.0.1.
        url: Its address, once it runs.
        websocket_url: Its address for websockets; "" without.
        monitor_url: Its address for monitoring; "" without.
        port: Its port; -1 before the first start if it chooses.

    Options of several methods:
        config: The configuration as one object. Without it, pass its fields as keywords.
        binary: The nats-server to start. By default the one that `find_nats_server` finds.
    """

    def __init__(
        self,
        config: str = "",
        *,
        jetstream: bool = True,
        port: int = -1,
        store_dir: str | os.PathLike[str] | None = None,
        binary: str | None = None,
        args: Sequence[str] = (),
        name: str = "",
    ) -> None:
        self.binary: str = binary or find_server()
        self.config: str = config
        self.jetstream = jetstream
        self.args: list[str] = list(args)
        self.name = name
        self.host = "127.0.0.1"
        self.url: str = ""
        self.websocket_url: str = ""
        self.monitor_url: str = ""
        self.port: int = port
        self._folder: str | None = None
        self._store = os.fspath(store_dir) if store_dir is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    # --- life -------------------------------------------------------------------------------------------

    def start(self) -> NatsServer:
        """Start the process and return when it accepts connections. Raises RuntimeError with its log if it does not.

        If its port is in use, the server is started again, three times in all.
        """
        tries = 1
        while True:
            try:
                return self._start()
            except RuntimeError as error:
                if tries == START_TRIES or TAKEN not in str(error):
                    raise
            tries += 1

    def _start(self) -> NatsServer:
        if self.running:
            return self
        folder = Path(self._make_folder())
        ports = folder / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        self._write_config(folder)
        self._log = (folder / "server.log").open("ab")
        # Its own session, because Ctrl-C in a terminal must not end the server under a test that handles the interrupt.
        self._process = subprocess.Popen(
            self._command(folder), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True
        )
        _running.add(self)
        watcher.note(self.pid, str(folder))
        try:
            wait_until(lambda: self._started(ports), START_TIMEOUT, "the ports file did not appear")
        except (TimeoutError, RuntimeError) as error:
            self.kill()
            raise RuntimeError(f"nats-server did not start ({error}):\n{self.log_text()[-2000:]}") from None
        return self

    def _make_folder(self) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="jsclient-nats-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def _write_config(self, folder: Path) -> None:
        # Do not pass the name with -n: a reload of the configuration refuses a name that only the flag had.
        name = f'server_name: "{self.name}"\n' if self.name else ""
        (folder / "server.conf").write_text(name + self.config)

    def _command(self, folder: Path) -> list[str]:
        command = [self.binary, "-c", str(folder / "server.conf"), "-a", self.host, "-p", str(self.port), "-m", "-1"]
        command += ["--ports_file_dir", str(folder / "ports")]
        if self.jetstream:
            command += ["-js", "-sd", self.store_dir]
        return command + self.args

    def _started(self, ports: Path) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"it ended with status {self._process.returncode}")
        for path in ports.glob("*.ports"):
            with contextlib.suppress(ValueError):  # being written
                self._read_ports(json.loads(path.read_text()))
                return True
        return False

    def _read_ports(self, ports: dict[str, list[str]]) -> None:
        self.url = ports["nats"][0]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.monitor_url = ports.get("monitoring", [""])[0]
        self.websocket_url = ports.get("websocket", [""])[0]

    def stop(self) -> None:
        """End it with SIGTERM, or with SIGKILL if that takes too long. It keeps its store and ports."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)  # a paused process does not see SIGTERM
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
        self._reap()

    def kill(self) -> None:
        """End it with SIGKILL, which simulates the crash of a machine as far as a process can. The store stays
        unchanged."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(STOP_TIMEOUT)
            self._process = None
            if self._folder is not None:
                watcher.note(0, self._folder)
            _running.discard(self)
        if self._log is not None:
            self._log.close()
            self._log = None

    def restart(self) -> NatsServer:
        """Stop it (if it runs) and start it again on the same port and the same store."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End it and remove the temporary files. A `store_dir` of the caller stays."""
        if self._store is None:
            self.kill()  # nothing reads that store again, and SIGTERM takes 0.1 to 0.7 s longer to write it
        else:
            self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            watcher.note(-1, self._folder)
            self._folder = None

    def __enter__(self) -> NatsServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- faults and settings ----------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        """Send a signal to the running process. Raises RuntimeError if it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("the nats-server does not run: `start()` it first")
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stop it with SIGSTOP. It keeps its connections and answers nothing. Returns when it has stopped."""
        self.signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):  # not on macOS before Python 3.13
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue it with SIGCONT after `pause()`."""
        self.signal(signal.SIGCONT)

    def lame_duck(self) -> None:
        """Start lame duck mode with SIGUSR2. The server needs `lame_duck_duration` of at least 30 s in its config."""
        self.signal(signal.SIGUSR2)

    def reload(self, config: str) -> None:
        """Replace the configuration and send SIGHUP. Returns when the server has logged that it uses it.

        Raises RuntimeError with the log if the server rejects it (some settings cannot be reloaded).
        """
        before = len(self.log_text())
        self.config = config
        self._write_config(Path(self._make_folder()))
        self.signal(signal.SIGHUP)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: RELOADED.search(self.log_text(), before), RELOAD_TIMEOUT)
        logged = self.log_text()[before:]
        if "Reloaded server configuration" not in logged:
            raise RuntimeError(f"nats-server did not take the configuration:\n{logged[-2000:]}")

    # --- looking ----------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True while its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError if it does not run."""
        if self._process is None:
            raise RuntimeError("the nats-server does not run: `start()` it first")
        return self._process.pid

    @property
    def store_dir(self) -> str:
        """The folder of its streams."""
        return self._store or str(Path(self._make_folder(), "store"))

    @property
    def version(self) -> tuple[int, int, int]:
        """Its version, for example (2, 11, 0)."""
        return server_version(self.binary)

    def log_text(self) -> str:
        """Everything it has logged since the first start ("" after close())."""
        if self._folder is None:
            return ""
        path = Path(self._folder, "server.log")
        return path.read_text(errors="replace") if path.exists() else ""

    def monitor(self, path: str) -> dict[str, Any]:
        """One monitoring page, decoded: `server.monitor("connz?subs=1")`."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.monitor_url}/{path.lstrip('/')}", timeout=10) as answer:
            page: dict[str, Any] = json.load(answer)
            return page

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self.running and self._process else "stopped"
        return f"<NatsServer {self.name or self.url or 'new'} {state}>"


@atexit.register
def _close_all() -> None:
    for server in list(_running):
        server.close()
    watcher.end()
