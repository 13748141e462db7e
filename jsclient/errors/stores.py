"""The errors of key-value buckets, object stores and services.

    JetStreamError
    +-- BucketError
        +-- BucketNotFound                  no bucket of that name
        |   +-- BucketGone (NoStreamForSubject)  a write found no bucket: it is certainly not stored (NotStored)
        +-- BucketExists                    a bucket of that name exists with another configuration
        +-- BadBucket                       the stream of that name is not a bucket
        +-- KeyNotFound (KeyError)          no such key, or no such revision of it
        |   +-- KeyDeleted                  the key's last entry is a delete or purge marker
        +-- KeyExists                       create of a key that has a value
        +-- RevisionMismatch                the key is at another revision than expected
        +-- ObjectNotFound                  no such object (or it was deleted)
        +-- ObjectExists                    a rename or link would replace an object
        +-- BadObjectMeta                   the stored meta information could not be read
        +-- ObjectLinkError                 the link cannot be made, or cannot be read as an object
        +-- ObjectChanged                   the chunks went away while they were read or written
        +-- DigestMismatch                  the data read differs from the stored data
    JsClientError
    +-- ServiceError                        a service answered with an error

Names that must not reach the wire raise `InvalidName` (a ValueError), as everywhere.
"""

from __future__ import annotations

from jsclient.errors.core import JsClientError
from jsclient.errors.jetstream import JetStreamError, NoStreamForSubject


class BucketError(JetStreamError):
    """Base of the errors of key-value buckets and object stores; `bucket` names the store."""

    def __init__(self, message: str, bucket: str = "") -> None:
        super().__init__(message)
        self.bucket = bucket


class BucketNotFound(BucketError):
    """There is no bucket of that name (in this account and domain)."""

    advice = "Create it, or check the name, the account and the domain."


class BucketGone(BucketNotFound, NoStreamForSubject):
    """A write found no bucket of that name, so it is certainly not stored (a NotStored). `subject` is its subject."""

    meaning = "Nothing was stored."
    advice = "Create it, or check the name, the account and the domain; then write again, which cannot store it twice."

    def __init__(self, message: str, bucket: str = "", subject: str = "") -> None:
        super().__init__(message, bucket)
        self.subject = subject


class BucketExists(BucketError):
    """A bucket of that name exists with another configuration; the server's error is `__cause__`."""

    meaning = "The bucket that exists is unchanged."
    advice = "Open it as it is, or update it."


class BadBucket(BucketError):
    """The stream of that name was not made as a bucket (it keeps no last message per subject)."""

    advice = "Use another name: this stream was not made as such a bucket."


class KeyNotFound(BucketError, KeyError):
    """The key has no value: it never had one, or the requested revision does not exist (or belongs to another key)."""

    def __init__(self, message: str, bucket: str = "", key: str = "") -> None:
        super().__init__(message, bucket)
        self.key = key


class KeyDeleted(KeyNotFound):
    """The key was deleted or purged, or its time to live is over; `revision` is the marker's revision."""

    def __init__(self, message: str, bucket: str = "", key: str = "", revision: int = 0) -> None:
        super().__init__(message, bucket, key)
        self.revision = revision


class KeyExists(BucketError):
    """`create` of a key that has a value; the server's error is `__cause__`."""

    meaning = "Nothing was stored."
    advice = "Use update() with its revision, or put() to store whatever is there."

    def __init__(self, message: str, bucket: str = "", key: str = "") -> None:
        super().__init__(message, bucket)
        self.key = key


class RevisionMismatch(BucketError):
    """The key is at another revision than the given one: another client was faster. `__cause__` is from the server."""

    meaning = "Nothing was stored."
    advice = "Read the key again and decide anew."

    def __init__(self, message: str, bucket: str = "", key: str = "") -> None:
        super().__init__(message, bucket)
        self.key = key


class ObjectNotFound(BucketError):
    """There is no object of that name, or it was deleted."""

    def __init__(self, message: str, bucket: str = "", name: str = "") -> None:
        super().__init__(message, bucket)
        self.name = name


class ObjectExists(BucketError):
    """A rename or a link would replace the object `name` that exists."""

    meaning = "Nothing was changed."
    advice = "Delete the object that exists, or choose another name."

    def __init__(self, message: str, bucket: str = "", name: str = "") -> None:
        super().__init__(message, bucket)
        self.name = name


class BadObjectMeta(BucketError):
    """The stored meta information of an object is not what an object store writes."""

    advice = "Store it again, and find out what else writes into this bucket."


class ObjectLinkError(BucketError):
    """A link to a deleted object, to a link or from nowhere; or a link to a bucket that was read as an object."""

    meaning = "Nothing was changed."
    advice = "Use the object itself instead of the link, or link to another one."


class ObjectChanged(BucketError):
    """The chunks of the object went away. It was deleted or replaced during the read, or a repair removed them."""

    meaning = "What was read of it is not whole; what was being written is not stored."


class DigestMismatch(BucketError):
    """The size or SHA-256 of the data read differs from the stored one: the data is damaged."""

    meaning = "What was read is not what was stored: do not use it."


class ServiceError(JsClientError):
    """A service answered with an error. Raise it in a handler to answer with one.

    `code` is the text of the header `Nats-Service-Error-Code` (usually an HTTP-like number), `description` the text of
    the header `Nats-Service-Error`, and `data` the body of the answer.
    """

    def __init__(self, code: str = "", description: str = "", data: bytes = b"") -> None:
        super().__init__(code, description)
        self.code: str = str(code)
        self.description = description
        self.data = data

    def __str__(self) -> str:
        return f"{self.code}: {self.description}"
