"""Checks of names, subjects and prefixes before they become part of an API subject.

A stream name with a dot would reach another API subject. These functions refuse wrong names, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from jsclient import checks, kinds
from jsclient.errors import ConfigError
from jsclient.nuid import next_nuid


def check_name(name: str, what: str) -> str:
    """A name of a stream or consumer: 1 to 255 bytes, none of space . * > / \\ and control characters."""
    checks.name(name, f"{what} name")
    return name


def whole(number: int, what: str) -> int:
    """An int of at most 64 bits that is not a bool; raises ConfigError for another number."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigError(f"{what} must be an int, not {type(number).__name__}")
    kinds.check(int, **{what: number})
    return number


def check_stream(name: str) -> str:
    return check_name(name, "stream")


def check_consumer(name: str) -> str:
    return check_name(name, "consumer")


def check_domain(domain: str) -> str:
    return check_name(domain, "domain")


def check_subject(subject: str, what: str = "subject", wildcards: bool = False) -> str:
    """A subject without (or with) wildcards; tokens must not be empty."""
    (checks.filter_subject if wildcards else checks.subject)(subject, what)
    return subject


def check_filters(subjects: Iterable[str] | None, what: str) -> None:
    """A list of subjects, wildcards allowed. A plain str is the usual mistake, and the error names it."""
    if subjects is None:
        return
    if isinstance(subjects, (str, bytes)):
        raise ConfigError(f"{what} must be a list of subjects: write [{subjects!r}]")
    if not isinstance(subjects, Iterable):
        raise ConfigError(f"{what} must be a list of subjects, not {type(subjects).__name__}")
    for subject in subjects:
        check_subject(subject, f"{what} entry", wildcards=True)


def api_prefix(domain: str | None = None, prefix: str | None = None) -> str:
    """The API prefix with its dot at the end: `$JS.API.`, a domain's prefix, or one used verbatim (account import)."""
    if domain is not None and prefix is not None:
        raise ConfigError("domain and api_prefix exclude each other: a domain is the prefix $JS.<domain>.API")
    if domain is not None:
        return f"$JS.{check_domain(domain)}.API."
    if prefix is not None:
        return check_subject(prefix[:-1] if prefix.endswith(".") else prefix, "api_prefix") + "."
    return "$JS.API."


def new_name() -> str:
    """A unique consumer name. The client generates it, not the server, so a repeated create is the same one."""
    return next_nuid()
