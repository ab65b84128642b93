"""What the words of errors mean, and the errors that are raised."""

from __future__ import annotations

import copy
from typing import Any, Dict, Optional, Type, TypeVar

import redis
from redis import exceptions
from redis.exceptions import LockError, LockNotOwnedError, RedisError, ResponseError

#: No reply arrived. The server may have carried out the request.
NO_REPLY = (redis.ConnectionError, redis.TimeoutError, OSError)

ROUTED = frozenset(("MOVED", "ASK"))
#: In reply to any request: it is sent again, but an ACQUIRE that does not wait is not.
_TEMPORARY = frozenset("TRYAGAIN CLUSTERDOWN READONLY MASTERDOWN LOADING UNBLOCKED BUSY MISCONF NOREPLICAS OOM".split())
#: The same, in reply to an ACQUIRE that waits and to EXTEND.
_FULL = frozenset(("GRACE", "QUEUEFULL"))
LOST = frozenset(("NOTHELD", "NOTOWNER", "STALE"))
#: In reply to EXTEND and RELEASE. A command in GUARD may find the wrong type elsewhere.
BROKEN = LOST | {"WRONGTYPE"}

_WHY = {
    "NOTHELD": "the server says that nobody holds it",
    "NOTOWNER": "the server says that others hold it",
    "STALE": "the server says that its owner has acquired it again since",
    "WRONGTYPE": "its key holds another type now",
    "EXPIRED": "its lease was not renewed in time",
    "TOOSHORT": "its lease was over before the grant arrived, 10 times: use a longer one",
    "MAXHOLD": "it was held for max_hold",
    "UNCONFIRMED": "no reply says that it was held until its release",
    "CLOSED": "its Locks were closed",
    "FORKED": "the parent of this process holds it",
    "RELEASED": "it was released",
    "": "it was not acquired",
}
#: The classes that redis-py has for some words.
_CLASSES: Dict[str, Type[RedisError]] = {
    "WRONGPASS": exceptions.AuthenticationError,
    "NOAUTH": exceptions.AuthenticationError,
    "NOPERM": exceptions.NoPermissionError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
    "LOADING": exceptions.BusyLoadingError,
    "CLUSTERDOWN": exceptions.ClusterDownError,
    "MASTERDOWN": exceptions.MasterDownError,
    "TRYAGAIN": exceptions.TryAgainError,
}
_WORDS = {kind: word for word, kind in _CLASSES.items()}


class Lost(LockNotOwnedError):
    """The lock is not held, or was not until its release: the work was not protected."""

    #: NOTHELD, NOTOWNER, STALE, WRONGTYPE, EXPIRED, MAXHOLD, UNCONFIRMED, CLOSED, FORKED or RELEASED.
    reason = ""
    __repr__ = BaseException.__repr__


class Timeout(LockError):
    """The lock was not granted in time."""

    #: TAKEN: others hold or await it. CONNECTION: no reply. Otherwise the word of the server's last error, as GRACE.
    reason = "TAKEN"
    __repr__ = BaseException.__repr__


def no_reply() -> redis.TimeoutError:
    return redis.TimeoutError("no reply from the server")


Named = TypeVar("Named", bound=LockError)


def named(error: Named, name: str) -> Named:
    """The error with the name of its lock, which redis-py before 5.1 does not take."""
    error.lock_name = name
    return error


def lost(name: str, reason: str, last: Optional[BaseException] = None) -> Lost:
    """`last` is the last error of a renewal."""
    after = f" after {last}" if last else ""
    error = named(Lost(f"the lock {name} is lost: {_WHY[reason]}{after}"), name)
    error.reason, error.__cause__ = "EXPIRED" if reason == "TOOSHORT" else reason, last
    return error


def timed_out(name: str, seconds: float, trouble: Optional[BaseException]) -> Timeout:
    """`trouble` is what prevented the grant. Without any, the server said that others hold the lock."""
    error = named(Timeout(f"the lock {name} was not granted within {seconds:g} s: {trouble or 'others hold it'}"), name)
    if trouble is not None:
        error.reason, error.__cause__ = word_of(trouble) or "CONNECTION", raised(trouble)
    return error


def word_of(reply: Any) -> str:
    """The first word of an error of the server, otherwise nothing."""
    return str(reply).split(" ")[0] if isinstance(reply, ResponseError) else ""


def is_temporary(word: str, may_be_full: bool) -> bool:
    return word in _TEMPORARY or (may_be_full and word in _FULL)


def node_of_cluster(redirection: str) -> ResponseError:
    return ResponseError(f"{redirection}: it is a node of a cluster: use a client for clusters")


def without_module(refusal: str, address: str) -> ResponseError:
    return ResponseError(f"{refusal.strip()} The server {address} does not have the module DLOCK: load it there")


def raised(error: BaseException) -> BaseException:
    """As redis-py raises it, and for one caller only: the traceback of an error keeps the frames of its caller."""
    if isinstance(error, LockError):
        return error
    if isinstance(error, ResponseError):
        return _CLASSES.get(word_of(error), ResponseError)(str(error))
    try:
        return copy.copy(error).with_traceback(error.__traceback__)
    except Exception:
        # Its class wants other arguments.
        return error


def with_word(error: RedisError) -> RedisError:
    """An error of the program's own client: redis-py has removed the first word of some."""
    word = getattr(error, "status_code", None) or _WORDS.get(type(error))
    if type(error) is ResponseError and not str(error).split(" ")[0].isupper():
        word = "ERR"
    return type(error)(f"{word} {error}") if word and not str(error).startswith(word) else error
