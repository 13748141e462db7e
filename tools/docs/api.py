"""The pages of the API reference, made from the packages themselves: every public name, every option, every docstring.

Public is what `__all__` of a package names; of a class its methods, properties and fields without a leading underscore.
"""

from __future__ import annotations

import argparse
import ast
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef, is_typeddict

import attrs
import msgspec

from tools.docs import fields as field_texts
from tools.docs.fields import fields

ROOT = Path(__file__).resolve().parents[2]
#: module -> title of its page
MODULES = {
    "jsclient": "jsclient",
    "jsclient.errors": "jsclient.errors",
    "jsclient.auth.credentials": "jsclient.auth",
    "jsclient.contexts": "jsclient.contexts",
    "jsclient.jetstream": "jsclient.jetstream",
    "jsclient.jetstream.advisories": "jsclient.jetstream.advisories",
    "jsclient.codecs": "jsclient.codecs",
    "jsclient.keyvalue": "jsclient.keyvalue",
    "jsclient.objectstore": "jsclient.objectstore",
    "jsclient.services": "jsclient.services",
    "jsclient.workers": "jsclient.workers",
    "jsclient.workers.metrics": "jsclient.workers.metrics",
    "jsclient.instruments": "jsclient.instruments",
    "jsclient.instruments.metrics": "jsclient.instruments.metrics",
    "jsclient.instruments.tracing": "jsclient.instruments.tracing",
    "jsclient.monitor": "jsclient.monitor",
    "jsclient.groups": "jsclient.groups",
    "jsclient.coordination": "jsclient.coordination",
    "jsclient.backup": "jsclient.backup",
    "jsclient.system": "jsclient.system",
    "jsclient.arrow": "jsclient.arrow",
    "jsclient.spark": "jsclient.spark",
    "jsclient.testing": "jsclient.testing",
    "jsclient.protocol": "jsclient.protocol",
}
#: Methods of every exception, struct and enum that say nothing about this one.
INHERITED = {"with_traceback", "add_note", "mro"}
#: Shown once, at the base of all errors.
INHERITED_BY_ERRORS = {"what"}
#: What the parts of the library call on each other when a connection drains or ends; and what only builds them.
PLUMBING = {"begin_drain", "all_received", "finish_drain", "end", "hand_back", "runs_here", "link_event", "deliver"}
#: Classes that users make themselves; all others come from a call, and their constructors are not shown.
MADE_BY_USERS = {
    *(
        "AsyncPublisher",
        "Together",
        "Cancel",
        "Cluster",
        "DeadLetters",
        "Election",
        "FakeServer",
        "Headers",
        "JetStream",
    ),
    *(
        "LeafPair",
        "Lock",
        "Monitor",
        "NatsServer",
        "OpenTelemetry",
        "PoolCollector",
        "Prometheus",
        "Proxy",
        "PubMsg",
        "Schedule",
        "Secret",
        "Semaphore",
        "SystemClient",
    ),
    *("WorkerPool", "Parser", "JetStreamListener"),
}
#: The main names, first on their page; all others follow in the order of `__all__`.
FIRST = [
    *("connect", "Connection", "Subscription", "Msg", "ConnectOptions", "ReconnectPolicy", "TLSOptions", "shared"),
    *("JetStream", "Stream", "Consumer", "JetStreamMsg", "Batch", "StreamConfig", "ConsumerConfig", "PubAck"),
    *("KeyValue", "KeyValueConfig", "ObjectStore", "ObjectStoreConfig", "WorkerPool", "PoolOptions", "NatsServer"),
]
#: A class with a longer text gets its own page, too.
LONG = 1200
#: The first words of docstrings of methods that other packages of the library call, and users do not.
INTERNAL = ("For layers",)
#: The first lines of a page that the side bar does not list.
ORPHAN = "---\norphan: true\n---\n"
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def page_name(module: str) -> str:
    return f"api/{module.removeprefix('jsclient.').removesuffix('.credentials').replace('.', '-')}.md"


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or, where there is none, what the module itself defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if not inspect.ismodule(resolve(module, name))]
    own = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
    }
    if module.__name__ == "jsclient.errors":
        return [name for name, value in own.items() if inspect.isclass(value) and issubclass(value, Exception)]
    return [name for name, value in own.items() if value.__module__ == module.__name__]


def resolve(module: ModuleType, name: str) -> Any:
    """The public object; None where an optional dependency (pyspark) is not installed."""
    try:
        return getattr(module, name)
    except ImportError:
        return None


def ours(value: Any) -> bool:
    home = getattr(value, "__module__", "") or ""
    return home.split(".")[0] == "jsclient"


# --- what a class consists of ------------------------------------------------------------------------------


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """(name, function or property) of every public member that a class of ours defines, in the order of the source."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not ours(base):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen or name in INHERITED | PLUMBING or name in fields(cls):
                continue
            if base is not cls and name in INHERITED_BY_ERRORS and issubclass(cls, BaseException):
                continue
            seen.add(name)
            known = isinstance(value, (staticmethod, classmethod)) or inspect.isfunction(value) or is_property(value)
            if known and not (inspect.getdoc(value) or "").startswith(INTERNAL):
                yield name, value


def is_property(value: Any) -> bool:
    return isinstance(value, property) or type(value).__name__ in ("cached_property", "_cached_property")


# --- text --------------------------------------------------------------------------------------------------


def signature(value: Any, *, method: bool = False) -> str:
    """`(subject, payload, *, timeout=5.0) -> Msg` as written; the first parameter of a method is left out."""
    function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    try:
        found = inspect.signature(function)
    except (ValueError, TypeError):
        return "()"
    parameters = list(found.parameters.values())
    if method and not isinstance(value, staticmethod) and parameters:
        parameters = parameters[1:]
    shown = [parameter.replace(default=Shown(parameter.default)) for parameter in parameters]
    return clean(str(found.replace(parameters=shown)))


class Shown:
    """A default value that shows itself in a form which parses."""

    def __new__(cls, value: Any) -> Any:
        if value is inspect.Parameter.empty:
            return value
        return super().__new__(cls)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if isinstance(self.value, enum.Enum):
            return f"{type(self.value).__name__}.{self.value.name}"
        if callable(self.value) and hasattr(self.value, "__name__"):
            return str(self.value.__name__)
        text = ADDRESS.sub("", repr(self.value))
        try:
            ast.parse(text, mode="eval")
        except SyntaxError:
            return "..."
        return text


def clean(text: str) -> str:
    """Annotations are strings in our modules: without their quotes they read as in the source."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def docstring(value: Any) -> str:
    """The text in the source, without the fields of a class, which follow one by one."""
    target = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    text = inspect.cleandoc(field_texts.own_doc(target)) if inspect.isclass(target) else inspect.getdoc(target) or ""
    return listed(field_texts.without_fields(text)) if text and not generated(target, text) else ""


def listed(text: str) -> str:
    """Its sections of options (`Options:`, then a line for each) as lists of Markdown."""
    lines = []
    inside = False
    for line in text.splitlines():
        entry = re.match(r"    (\w[\w, ]*): (.*)$", line) if inside else None
        if re.match(r"[A-Z][\w ]*ptions[\w ]*:$", line):
            inside = True
            line += "\n"
        elif line and not line.startswith(" "):
            inside = False
        elif entry:
            line = f"- `{entry[1].replace(', ', '`, `')}`: {entry[2]}"
        elif inside:
            line = "  " + line.strip()
        lines.append(line)
    return "\n".join(lines)


def generated(value: Any, text: str) -> bool:
    """attrs and enum give a class without a docstring a text of their own."""
    return text.startswith(("Method generated by attrs", "An enumeration.", "Create a collection of name/value pairs"))


def options_text(value: Any) -> str:
    """The options that a call hands on (`**options: Unpack[PullOptionsDict]`), one by one."""
    target = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    try:
        parameters = inspect.signature(target).parameters.values()
    except (ValueError, TypeError):
        return ""
    handed = [p.annotation for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    found = re.match(r"Unpack\[(?:\w+\.)?(\w+)\]", str(handed[0])) if handed else None
    table = typed_dicts().get(found[1]) if found else None
    if table is None:
        return ""
    shown = [f"`{name}: {kind.__forward_arg__}`" for name, kind in inherited_annotations(table).items()]
    return f"Options: {', '.join(shown)}.\n"


@cache
def typed_dicts() -> dict[str, Any]:
    """Every TypedDict of the library, by name."""
    found = {}
    for path in sorted((ROOT / "jsclient").rglob("*.py")):
        if "total=False" in path.read_text(encoding="utf-8"):
            try:
                module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            except ImportError:  # an extra is not installed
                continue
            found.update({name: value for name, value in vars(module).items() if is_typeddict(value)})
    return found


def inherited_annotations(table: Any) -> dict[str, Any]:
    kinds = dict(table.__annotations__)
    return {name: kind if hasattr(kind, "__forward_arg__") else ForwardRef(str(kind)) for name, kind in kinds.items()}


def indented(text: str) -> str:
    return text.rstrip() + "\n"


def member_text(name: str, value: Any) -> Iterator[str]:
    if is_property(value):
        getter: Any = value.fget if isinstance(value, property) else value.func
        kind = inspect.signature(getter).return_annotation
        yield f":::{{py:property}} {name}"
        if kind is not inspect.Signature.empty:
            yield f":type: {kind}"
        yield ""
        yield indented(docstring(getter))
    else:
        yield f":::{{py:method}} {name}{signature(value, method=True)}"
        if isinstance(value, classmethod):
            yield ":classmethod:"
        if isinstance(value, staticmethod):
            yield ":staticmethod:"
        yield ""
        yield indented(docstring(value))
        yield options_text(value)
    yield ":::\n"


def class_text(name: str, cls: type) -> Iterator[str]:
    """A table of keyword arguments repeats what its call shows, so the index and the search leave it out."""
    exception = issubclass(cls, BaseException)
    head = name if exception or issubclass(cls, enum.Enum) else name + class_signature(cls)
    hidden = [":no-index:"] if is_typeddict(cls) else []
    yield f"::::{{py:{'exception' if exception else 'class'}}} {head}"
    yield from [*hidden, ""]
    if exception:
        bases = ", ".join(f"`{base.__name__}`" for base in known_bases(cls))
        code = getattr(cls, "err_codes", None) or ()
        yield f"Is a {bases}.{f' Server codes: {sorted(code)}.' if code else ''}\n"
    yield indented(docstring(cls))
    for title, text in (("For the data", getattr(cls, "meaning", "")), ("What to do", getattr(cls, "advice", ""))):
        if exception and text:
            yield f"{title}: {text}\n"
    for name_of_field, field in fields(cls).items():
        yield f":::{{py:attribute}} {name_of_field}"
        yield from hidden
        if field.annotation:
            yield f":type: {field.annotation}"
        if field.default:
            yield f":value: {field.default}"
        yield f"\n{field.text}\n:::\n"
    for member, value in members(cls):
        yield from member_text(member, value)
    yield "::::\n"


def known_bases(cls: type) -> Iterator[type]:
    """The classes that it is a kind of and a reader can look up: one that no page shows gives way to its own."""
    for base in cls.__bases__:
        if not ours(base) or base.__name__ in every_public_name():
            yield base
        else:
            yield from (known for known in known_bases(base) if known is not object)


@cache
def every_public_name() -> set[str]:
    return {name for module in MODULES for name in public_names(importlib.import_module(module))}


def class_signature(cls: type) -> str:
    if attrs.has(cls) or issubclass(cls, msgspec.Struct):
        return ""  # the fields below say the same, and more
    if cls.__name__ not in MADE_BY_USERS:
        return ""
    if "__init__" not in vars(cls) and not any("__init__" in vars(base) for base in cls.__mro__ if ours(base)):
        return ""
    return re.sub(r" -> None$", "", signature(cls.__init__, method=True))


def module_pages(module_name: str) -> dict[str, str]:
    """The page of a module, and a page for each of its main classes."""
    module = importlib.import_module(module_name)
    page = page_name(module_name)
    made = {page: ""}
    links = ["| class | purpose |", "|---|---|"]
    lines = []
    for name, value in sorted(named(module), key=place):
        if inspect.isclass(value):
            whole = "\n".join(class_text(name, value))
            own = f"{page.removesuffix('.md')}.{name}.md"
            if has_a_page(name, value, whole):
                made[own] = class_page(module_name, name, whole)
                links.append(f"| [{name}]({Path(own).name}) | {first_sentence(docstring(value))} |")
            else:
                lines.append(whole)
        elif callable(value) and not is_alias(value):
            text = [indented(docstring(value)), options_text(value)]
            lines += [f":::{{py:function}} {name}{signature(value)}\n", *text, ":::\n"]
        else:
            lines += [f":::{{py:data}} {name}\n", alias_text(value), ":::\n"]
    made[page] = "\n".join(
        [
            ORPHAN,
            f"# {MODULES[module_name]}\n",
            "Part of the [API reference](index.md).\n",
            indented(docstring_of_module(module)),
            f"```{{py:module}} {module_name}\n```\n",
            *([*links, ""] if len(links) > 2 else []),
            *lines,
        ]
    )
    return made


def has_a_page(name: str, cls: type, text: str) -> bool:
    if is_typeddict(cls) or issubclass(cls, BaseException):
        return False
    return name in FIRST or len(text) > LONG


def class_page(module_name: str, name: str, text: str) -> str:
    parent = Path(page_name(module_name)).name
    current = f"```{{py:currentmodule}} {module_name}\n```\n"
    return "\n".join([ORPHAN, f"# {name}\n", f"A class of [{module_name}]({parent}).\n", current, text])


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s|\n\n", " ".join(text.split("\n\n")[0].split()))[0].replace("|", "\\|")


def named(module: ModuleType) -> Iterator[tuple[str, Any]]:
    return ((name, resolve(module, name)) for name in public_names(module))


def place(found: tuple[str, Any]) -> int:
    """First the main names, then all others, and last the tables of keyword arguments."""
    name, value = found
    if is_typeddict(value):
        return len(FIRST) + 1
    return FIRST.index(name) if name in FIRST else len(FIRST)


def docstring_of_module(module: ModuleType) -> str:
    return inspect.cleandoc(module.__doc__ or "")


def is_alias(value: Any) -> bool:
    return type(value).__module__ == "typing" or hasattr(value, "__origin__")


def alias_text(value: Any) -> str:
    if is_alias(value):
        return f"`{str(value).replace('typing.', '')}`\n"
    return f"`{value!r}`\n" if value is not None else "\n"


def command_line_page() -> str:
    """`--help` of every command, as a terminal of 88 columns shows it."""
    from jsclient.cli.commands import parser

    lines = ["# The command line\n", "`jsclient COMMAND`, or `python -m jsclient COMMAND`.\n"]
    for title, text in helps(parser()):
        lines += [f"## {title}\n", "```text", *map(folded, text.rstrip().splitlines()), "```\n"]
    return "\n".join(lines)


def folded(line: str) -> str:
    """Alternatives that argparse leaves in one line of any width."""
    parts = textwrap.wrap(line, 88, subsequent_indent=" " * (len(line) - len(line.lstrip()) + 4))
    return line if len(line) <= 88 else "\n".join(parts)


def helps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    kind: Any = parser.formatter_class
    parser.formatter_class = partial(kind, width=88)
    yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from helps(child)


def pages() -> dict[str, str]:
    """file name -> text of every page of the reference, and of their index."""
    made = {name: text for module in MODULES for name, text in module_pages(module).items()}
    made["api/command-line.md"] = command_line_page()
    made["api/index.md"] = index_page(list(made))
    return made


def index_page(names: list[str]) -> str:
    """All modules with their main classes."""
    lines = ["# API reference\n", "Every public name is here, from the docstrings and types of the code. A name that"]
    lines += ["these pages do not have is internal.\n", "| module | purpose | main classes |", "|---|---|---|"]
    for module, title in MODULES.items():
        page = Path(page_name(module)).name
        purpose = first_sentence(docstring_of_module(importlib.import_module(module))).rstrip(".")
        own = [Path(name).name for name in names if Path(name).name.startswith(page.removesuffix("md"))]
        main = [name for name in own if name.split(".")[-2] in FIRST]
        classes = ", ".join(f"[{name.split('.')[-2]}]({name})" for name in main)
        lines.append(f"| [{title}]({page}) | {purpose} | {classes} |")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    for name, text in pages().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
