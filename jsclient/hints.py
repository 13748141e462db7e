"""Supplies names for `typing.get_type_hints` that a module does not import at run time.

Annotations are strings until code evaluates them; then Python looks up their names in the module. The module cannot
import some of them. The import would be circular (a Stream makes Consumers, a Consumer knows its JetStream), or would
load code that most programs do not use. Such a module declares the names it wants. It gets them when the module that
defines them is loaded.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Unpack
elif sys.version_info >= (3, 11):
    from typing import Unpack
else:

    class Unpack:
        """For Python 3.10, which does not have it: here `Unpack[Options]` is Options."""

        def __class_getitem__(cls, options: Any) -> Any:
            return options


__all__ = ["Unpack", "given", "wanted"]

_known: dict[str, Any] = {}
_wanted: dict[str, list[dict[str, Any]]] = {}


def wanted(module: dict[str, Any], *names: str) -> None:
    """Register the `globals()` of a module, and the names in its annotations that it does not import."""
    for name in names:
        if name in _known:
            module.setdefault(name, _known[name])
        else:
            _wanted.setdefault(name, []).append(module)


def given(*classes: type) -> None:
    """Supply classes that other modules want."""
    for one in classes:
        _known[one.__name__] = one
        for module in _wanted.pop(one.__name__, ()):
            module.setdefault(one.__name__, one)
