"""The check that `import protocol` finds the package of jsclient, and the advice if another module hides it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys

PART = "columns"
"""A module of ours that no other `protocol` has."""


def hidden() -> str:
    """The text of an error that names the file or the distribution; "" if our package is found. It runs no module."""
    loaded = sys.modules.get("protocol")
    try:
        spec = importlib.util.find_spec("protocol")
    except ValueError:  # a module without a spec in sys.modules
        spec = None
    places = None if spec is None else spec.submodule_search_locations
    if spec is not None and places:
        packed = spec.origin and not isinstance(spec.loader, importlib.machinery.SourceFileLoader)
        if packed or importlib.machinery.PathFinder.find_spec(f"protocol.{PART}", places) is not None:
            return ""  # `packed`: an application in one file, which holds what was found when it was made
    file = spec.origin if spec is not None and spec.origin else getattr(loaded, "__file__", None)
    return _advice(file or ", ".join(places or ()))


def _advice(file: str) -> str:
    if not file:
        return "jsclient needs its package `protocol`, and Python finds none. Install jsclient again"
    owners = _distributions_of(file)
    if owners is None:
        return (
            f"the package `protocol` of jsclient is hidden by {file}, which Python finds first. Rename that file or "
            "folder, or start your program from another folder"
        )
    return (
        f"the package `protocol` of jsclient is hidden by {file}, which {owners or 'another distribution'} has "
        "installed. Uninstall it, or use an environment of its own for jsclient. Then install jsclient again"
    )


def _distributions_of(file: str) -> str | None:
    """The distributions that install `protocol`, "" if unknown; None for a file outside of the installed packages."""
    import importlib.metadata
    import os
    import site
    import sysconfig

    folders = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    path = os.path.realpath(file)
    if not any(path.startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders):
        return None
    names = importlib.metadata.packages_distributions().get("protocol", ())
    return " and ".join(sorted(set(names) - {"jsclient"}))
