"""Every exception of jsclient. Import them from here; the files of this folder are for reading.

    JsClientError
    +-- ConfigError (ValueError)            bad option, argument or combination; nothing was sent
    |   +-- InvalidSubject                  subject, reply, queue or inbox prefix that must not reach the wire
    |   +-- InvalidName                     stream, consumer, bucket, key ... name
    |   +-- InvalidHeader                   header name or value
    |   +-- PayloadTooLarge                 more than max_payload, or than the limits of a stream
    |   +-- EncodeFailed                    a value that the codec cannot write
    +-- MalformedHeaders                    a received header block that does not begin with NATS/1.0
    +-- DecodeFailed (ValueError)           bytes that are not of the type that was asked for
    +-- Reentered (RuntimeError)            called where it would wait for its own thread (signal handler, finalizer)
    +-- NotSupported                        the server is too old for what was asked, or would silently ignore it
    +-- NatsConnectionError (ConnectionError)   the connection itself
    |   +-- ConnectFailed                   no server could be reached (says which were tried, and why each failed)
    |   +-- NotANatsServer                  somebody answered, but not with INFO
    |   +-- TlsError                        TLS refused, not available, or verification failed
    |   +-- AuthError                       the server refused the credentials
    |   |   +-- AuthExpired, AuthRevoked, AuthTimeout
    |   +-- ConnectionClosed                this Connection was closed (by you, or after a final failure)
    |   +-- ConnectionLost                  the link went down while the call waited
    |   +-- ConnectionDraining              publish or subscribe after drain()
    |   +-- ForkedConnection                used in a child process after fork
    |   +-- StaleConnection                 the server stopped answering pings
    |   +-- BufferFull                      the pending buffer of a disconnected connection is full
    +-- TimedOut (TimeoutError)             nothing came in time
    |   +-- RequestTimeout                  no reply in time
    |   +-- FlushTimeout, DrainTimeout
    |   +-- UnknownOutcome                  sent, not confirmed: it may or may not have been done
    +-- NoResponders                        nobody listens on the subject: certainly not delivered
    +-- PermissionViolation                 the server refused a publish or subscribe
    +-- ServerError                         another -ERR of the server
    |   +-- MaxConnectionsExceeded (NatsConnectionError), MaxSubscriptionsExceeded
    +-- SlowConsumer                        messages were dropped because they were not taken fast enough
    +-- SubscriptionClosed                  the subscription or iterator was closed
    +-- NoThread (RuntimeError)             the system gave no further thread: nothing was left running
    +-- JetStreamError                      what JetStream answers or refuses: see jsclient/errors/jetstream.py,
                                            server_codes.py (by err_code) and stores.py (key-value, objects, services)

Timeouts also inherit `TimeoutError`, errors of the connection `ConnectionError`, bad arguments `ValueError`. Every
class pickles.
"""

from __future__ import annotations

from jsclient.errors.core import *  # noqa: F403
from jsclient.errors.core import JsClientError
from jsclient.errors.jetstream import *  # noqa: F403
from jsclient.errors.server_codes import *  # noqa: F403
from jsclient.errors.stores import *  # noqa: F403

# Tracebacks and pickles show the name under which it is imported.
for _found in list(vars().values()):
    if isinstance(_found, type) and issubclass(_found, JsClientError):
        _found.__module__ = __name__
