"""jsclient.errors: at home among the exceptions of Python."""

from __future__ import annotations

import pickle

import pytest

from jsclient import errors
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


def test_every_error_is_documented_and_pickles() -> None:
    ours = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.JsClientError)]
    assert [cls for cls in ours if not cls.__doc__] == []
    for cls in ours:
        copy = pickle.loads(pickle.dumps(cls("text")))
        assert (type(copy), copy.args) == (cls, cls("text").args)
    for code, made in errors.ApiError.registry.items():
        error = errors.api_error(400, code, "text")
        assert type(error) is made
        assert pickle.loads(pickle.dumps(error)).err_code == code
        assert f"err_code {code}" in str(error)
