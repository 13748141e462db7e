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
    """An error by its err_code (such as 10059) or its name (such as StreamNotFound)."""
    known = errors.ApiError.registry
    code = options.code
    of_name = {text.name: number for number, text in errors.ApiError.texts.items()}
    number = int(code) if code.isdigit() else of_name.get(code, 0)
    found = known.get(number) if number else getattr(errors, code, None)
    if not (inspect.isclass(found) and issubclass(found, errors.JsClientError)):
        raise NothingThere(f"no error of JetStream or jsclient has the code or name {code!r}")
    text = errors.ApiError.texts.get(number)
    error = found(0, number) if text else found
    name = text.name if text else found.__name__
    pairs = {
        "class": found.__name__,
        "codes": [
            each for each, kind in sorted(known.items()) if kind is found and errors.ApiError.texts.get(each) == text
        ],
        "occurs": text.occurs if text else inspect.cleandoc(found.__doc__ or "").replace("\n", " "),
        "means": error.meaning,
        "advice": error.advice,
    }
    told = {key: ", ".join(map(str, one)) if isinstance(one, list) else one for key, one in pairs.items()}
    details(options, {"name": name, **pairs}, name, told.items())
