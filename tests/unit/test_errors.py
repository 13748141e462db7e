"""jsclient.errors: at home among the exceptions of Python."""

from __future__ import annotations

import pickle

import pytest

import jsclient
from jsclient import errors, jetstream, keyvalue, objectstore, protocol, services, workers
from jsclient.durations import check_timeout


@pytest.mark.parametrize(
    "error",
    [
        errors.ConnectFailed("no server", [("nats://a", "refused")]),
        errors.ConnectionLost("gone", sent=False),
        errors.ConnectionClosed("closed"),
        errors.StaleConnection("silent"),
        errors.AuthError("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_the_connection_are_those_of_python_and_pickle(error: errors.NatsConnectionError) -> None:
    """Code that knows no NATS catches ConnectionError; one argument more must not become an errno."""
    assert isinstance(error, ConnectionError)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)
    assert error.errno is None


def test_a_negative_timeout_is_a_configuration_error_too() -> None:
    for wrong in (-1.0, float("nan")):
        with pytest.raises(errors.ConfigError, match="0 or more seconds"):
            check_timeout(wrong)
        with pytest.raises(ValueError):
            check_timeout(wrong)


def test_no_public_name_ends_in_an_underscore() -> None:
    for module in (jsclient, errors, protocol, jetstream, keyvalue, objectstore, services, workers):
        assert [name for name in vars(module) if name.endswith("_") and not name.startswith("_")] == []
