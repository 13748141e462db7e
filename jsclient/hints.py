"""What `typing.get_type_hints` needs beside what a module imports when it runs.

Annotations are text until somebody asks for them; then their names are looked up in the module. Some cannot be imported
there, because the import would go in a circle, or would load what most programs do not use: a Stream makes Consumers, a
Consumer knows its JetStream. Such a module says which names it wants, and gets them when the module that has them is
loaded.
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
        """Python 3.10 does not have it: here `Unpack[Options]` is Options."""

        def __class_getitem__(cls, options: Any) -> Any:
            return options


__all__ = ["Unpack", "given", "wanted"]

_known: dict[str, Any] = {}
_wanted: dict[str, list[dict[str, Any]]] = {}


def wanted(module: dict[str, Any], *names: str) -> None:
    """The `globals()` of a module, and what its annotations name and it does not import."""
    for name in names:
        if name in _known:
            module.setdefault(name, _known[name])
        else:
            _wanted.setdefault(name, []).append(module)


def given(*classes: type) -> None:
    """Classes that other modules want."""
    for one in classes:
        _known[one.__name__] = one
        for module in _wanted.pop(one.__name__, ()):
            module.setdefault(one.__name__, one)
