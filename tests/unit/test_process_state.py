"""The library leaves alone what the whole process shares: umask, directory, signals, locale, environment."""

from __future__ import annotations

import ast
from pathlib import Path

import jsclient
from jsclient import protocol

PROCESS_WIDE = {
    *("os.umask", "os.chdir", "os.fchdir", "os.putenv", "os.unsetenv", "os.nice", "os.environ.update"),
    *("os.environ.setdefault", "os.environ.pop", "signal.signal", "signal.setitimer", "signal.alarm"),
    *("signal.pthread_sigmask", "signal.set_wakeup_fd", "locale.setlocale", "time.tzset", "socket.setdefaulttimeout"),
    *("logging.basicConfig", "logging.disable", "logging.captureWarnings", "logging.setLoggerClass", "random.seed"),
    *("warnings.simplefilter", "warnings.filterwarnings", "warnings.catch_warnings", "threading.stack_size"),
    *("sys.setrecursionlimit", "sys.setswitchinterval", "sys.path.insert", "sys.path.append", "gc.disable"),
    *("gc.freeze", "gc.set_threshold", "resource.setrlimit", "faulthandler.enable", "multiprocessing.set_start_method"),
    *("decimal.setcontext", "contextlib.chdir", "contextlib.redirect_stdout", "contextlib.redirect_stderr"),
}
HOOKS = ("os.environ", "sys.excepthook", "sys.unraisablehook", "threading.excepthook", "sys.stdout", "sys.stderr")

ALLOWED = {
    ("spark/context.py", "gc.freeze"),  # only in a worker of Spark
    ("cli/server.py", "signal.signal"),  # a program, which is its process
    ("cli/worker.py", "signal.signal"),
    ("cli/worker.py", "signal.pthread_sigmask"),
    ("cli/worker.py", "sys.path.insert"),
    ("cli/worker.py", "logging.basicConfig"),
    ("_connection/fork.py", "threading.excepthook"),  # when the interpreter exits
    ("workers/signals.py", "signal.signal"),  # `run_until_signal`: asked for, and put back
    ("workers/supervisor.py", "signal.signal"),
    ("workers/supervisor.py", "signal.pthread_sigmask"),  # put back once the process is started
}


def changes(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in PROCESS_WIDE:
            found.add(name)
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else ()
        for target in targets:
            plain = target.value if isinstance(target, ast.Subscript) else target
            if (name := ast.unparse(plain)) in HOOKS:
                found.add(name)
    return found


def test_only_programs_change_what_belongs_to_the_process() -> None:
    seen = set()
    for package in (jsclient, protocol):
        root = Path(str(package.__file__)).parent
        for path in root.rglob("*.py"):
            seen |= {(path.relative_to(root).as_posix(), name) for name in changes(path)}
    assert seen == ALLOWED
