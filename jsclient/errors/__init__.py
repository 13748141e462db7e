"""Every exception of jsclient. Import them from here; the files of this folder are for reading.

    JsClientError
    +-- ConfigError (ValueError)            bad option, argument or combination; nothing was sent
    |   +-- InvalidSubject                  subject, reply, queue or inbox prefix that must not reach the wire
    |   +-- InvalidName                     stream, consumer, bucket, key ... name
    |   +-- InvalidHeader                   header name or value
    |   +-- PayloadTooLarge                 more than max_payload, or than the limits of a stream
    |   +-- EncodeFailed                    a value that the codec cannot write
    +-- MalformedHeaders                    a received header block that does not begin with NATS/1.0
    +-- DecodeFailed (ValueError)           bytes of another type than the program asked for
    +-- Reentered (RuntimeError)            the call would wait for its own thread (signal handler, finalizer)
    +-- NotSupported                        the server is too old for the request, or would silently ignore it
    +-- NatsConnectionError (ConnectionError)   the connection itself
    |   +-- ConnectFailed                   no server could be reached (the text lists each server and its failure)
    |   +-- NotANatsServer                  something answered, but not with INFO
    |   +-- TlsError                        TLS refused, unavailable, or verification failed
    |   +-- AuthError                       the server refused the credentials
    |   |   +-- AuthExpired, AuthRevoked, AuthTimeout
    |   +-- ConnectionClosed                this Connection was closed (by you, or after a final failure)
    |   +-- ConnectionLost                  the connection was lost while the call waited
    |   +-- ConnectionDraining              publish or subscribe after drain()
    |   +-- ForkedConnection                used in a child process after fork
    |   +-- StaleConnection                 the server stopped answering pings
    |   +-- BufferFull                      the pending buffer of a disconnected connection is full
    +-- TimedOut (TimeoutError)             nothing came in time
    |   +-- RequestTimeout                  no reply in time
    |   +-- FlushTimeout, DrainTimeout
    |   +-- UnknownOutcome                  sent but not confirmed, so its outcome is unknown
    +-- NoResponders                        no one listens on the subject: certainly not delivered
    +-- PermissionViolation                 the server refused a publish or subscribe
    +-- ServerError                         another -ERR of the server
    |   +-- MaxConnectionsExceeded (NatsConnectionError), MaxSubscriptionsExceeded
    +-- SlowConsumer                        messages were dropped because the application was too slow
    +-- SubscriptionClosed                  the subscription or iterator was closed
    +-- NoThread (RuntimeError)             the system had no further thread; nothing was left running
    +-- JetStreamError                      errors of JetStream: see jsclient/errors/jetstream.py,
                                            server_codes.py (by err_code) and stores.py (key-value, objects, services)

Timeouts also inherit `TimeoutError`, errors of the connection `ConnectionError`, bad arguments `ValueError`. Every
class pickles.
"""

from __future__ import annotations

from jsclient.errors.core import *  # noqa: F403
from jsclient.errors.core import JsClientError
from jsclient.errors.jetstream import *  # noqa: F403
from jsclient.errors.other_codes import *  # noqa: F403
from jsclient.errors.server_codes import *  # noqa: F403
from jsclient.errors.stores import *  # noqa: F403

# Tracebacks and pickles show the name under which users import it.
for _found in list(vars().values()):
    if isinstance(_found, type) and issubclass(_found, JsClientError):
        _found.__module__ = __name__
