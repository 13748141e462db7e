"""`errors lookup CODE`: the class of an error, its meaning, and what to do. Needs no server."""

from __future__ import annotations

import inspect

from jsclient import errors
from jsclient.cli.arguments import Options, arg
from jsclient.cli.commands import Commands
from jsclient.cli.output import NothingThere, details

cli: Commands = Commands()

_CODE = arg("code", metavar="CODE|NAME")


@cli.local("errors lookup", _CODE)
def show_error(options: Options) -> None:
    """An error by its err_code (such as 10059) or its class (such as StreamNotFound)."""
    known = errors.ApiError.registry
    code = options.code
    found = known.get(int(code)) if code.isdigit() else getattr(errors, code, None)
    if not (inspect.isclass(found) and issubclass(found, errors.JsClientError)):
        raise NothingThere(f"no error of JetStream or jsclient has the code or name {code!r}")
    pairs = {
        "codes": [code for code, kind in sorted(known.items()) if kind is found],
        "occurs": inspect.cleandoc(found.__doc__ or "").replace("\n", " "),
        "means": found.meaning,
        "advice": found.advice,
    }
    told = {key: ", ".join(map(str, one)) if isinstance(one, list) else one for key, one in pairs.items()}
    details(options, {"name": found.__name__, **pairs}, found.__name__, told.items())
