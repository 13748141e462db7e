"""The command line: `python -m jsclient` or `jsclient`.

Exit status is 0 for done, 1 for a failure, 2 for wrong usage and 130 if interrupted. It is 3 if there is no message, or
no such stream, consumer, bucket or key.
"""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from jsclient import errors
from jsclient.cli.commands import parse
from jsclient.cli.output import Declined, NothingThere, complain

FAILED = 1
USAGE = 2
NOTHING_THERE = 3
INTERRUPTED = 130

_ABSENT = (
    errors.StreamNotFound,
    errors.ConsumerNotFound,
    errors.ConsumerDeleted,
    errors.MessageNotFound,
    errors.KeyNotFound,
    errors.BucketNotFound,
    errors.ObjectNotFound,
    errors.NoMessages,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A stored subject may be any bytes. The escapes of unprintable bytes are valid in JSON, too.
        sys.stdout.reconfigure(errors="backslashreplace")
    options: Namespace | None = None
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        options.arguments = None if arguments is None else list(arguments)
        return int(options.run(options) or 0)
    except errors.JsClientError as error:
        complain(f"{_about(options, error)}{error}")
        return _status(error)
    except NothingThere as absent:
        complain(str(absent))
        return NOTHING_THERE
    except Declined:
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Avoid a traceback, even from the flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        complain(str(error))
        return FAILED
    except UnicodeDecodeError as error:
        complain(f"a file or standard input is not UTF-8: {error.reason} at byte {error.start}")
        return FAILED


def _about(options: Namespace | None, error: errors.JsClientError) -> str:
    """The name of the stream or consumer that is missing, because the server's text has none."""
    stream, consumer = getattr(options, "stream", None), getattr(options, "consumer", None)
    if stream and isinstance(error, errors.StreamNotFound):
        return f"stream {stream}: "
    if stream and consumer and isinstance(error, errors.ConsumerNotFound):
        return f"consumer {consumer} of stream {stream}: "
    return ""


def _status(error: errors.JsClientError) -> int:
    groups = sys.modules.get("jsclient.groups")  # only commands that use groups import them
    if isinstance(error, _ABSENT) or (groups is not None and isinstance(error, groups.GroupNotFound)):
        return NOTHING_THERE
    return USAGE if isinstance(error, errors.ConfigError) else FAILED
