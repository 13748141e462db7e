"""`errors lookup CODE`: the class of an error, its meaning, and what to do. Needs no server."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from jsclient import errors
from jsclient.cli.arguments import group
from jsclient.cli.output import page, record


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    text = "An error by its err_code (such as 10059) or its class (such as StreamNotFound)."
    lookup = group(commands, "errors").add_parser("lookup", help=text, description=text)
    lookup.add_argument("code", metavar="CODE|NAME")
    lookup.add_argument("-j", "--json", action="store_true", help="JSON lines instead of text")
    lookup.set_defaults(run=show_error)


def show_error(options: argparse.Namespace) -> None:
    known = errors.ApiError.registry
    code = options.code
    found = known.get(int(code)) if code.isdigit() else getattr(errors, code, None)
    if not (inspect.isclass(found) and issubclass(found, errors.JsClientError)):
        raise errors.NoMessages(f"no error of JetStream or jsclient has the code or name {code!r}")
    pairs = {
        "codes": [code for code, kind in sorted(known.items()) if kind is found],
        "occurs": inspect.cleandoc(found.__doc__ or "").replace("\n", " "),
        "means": found.meaning,
        "advice": found.advice,
        "bases": [base.__name__ for base in found.__mro__[1:] if issubclass(base, Exception)][:-1],
    }
    if options.json:
        record({"name": found.__name__, **pairs})
    else:
        told = {key: ", ".join(map(str, one)) if isinstance(one, list) else one for key, one in pairs.items()}
        page(found.__name__, told.items())
