"""The options of an acquisition, and what is refused before anything is sent."""

from __future__ import annotations

from math import ceil, inf
from numbers import Real
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple, TypedDict, Union

Key = Union[str, bytes]


class Options(TypedDict, total=False):
    """Options of an acquisition. Times are in seconds."""

    lease: float  #: how long the lock is held without a renewal, 30 by default
    renew: bool  #: whether the lease is renewed until the release, as it is by default
    timeout: Optional[float]  #: how long to wait at most. None, the default, is no limit; 0 only tries
    max_hold: Optional[float]  #: after how long it is lost although it is renewed. None, the default, is no limit
    shared: bool  #: any number of holders, if all are shared
    limit: int  #: at most this many holders, 1 by default
    owner: str  #: whoever has the same owner re-enters the lock. By default each acquisition has its own
    on_lost: Callable[[Any], object]  #: called once with the lock when it is lost: by a thread, or the event loop


_NAMES = frozenset(Options.__annotations__)


class Terms(NamedTuple):
    """The same, once they are known to make sense."""

    lease_ms: int
    renew: bool
    timeout: Optional[float]
    max_hold: float
    #: Words of ACQUIRE.
    share: Tuple[Union[bytes, int], ...]
    owner: str
    on_lost: Optional[Callable[[Any], object]]

    @property
    def waits(self) -> bool:
        return self.timeout is None or self.timeout > 0


def terms(options: Mapping[str, Any]) -> Terms:
    return _checked(options) if options else _DEFAULT


def _checked(options: Mapping[str, Any]) -> Terms:
    unknown = options.keys() - _NAMES
    if unknown:
        raise TypeError(f"unknown option {sorted(unknown)[0]}: there are {', '.join(Options.__annotations__)}")
    timeout, max_hold = options.get("timeout"), options.get("max_hold")
    timeout_ms = None if timeout is None else milliseconds("timeout", timeout, may_be_zero=True, may_be_infinite=True)
    max_hold_ms = None if max_hold is None else milliseconds("max_hold", max_hold, may_be_infinite=True)
    on_lost = options.get("on_lost")
    if on_lost is not None and not callable(on_lost):
        raise TypeError(f"on_lost must be a function, not {on_lost!r}")
    return Terms(
        milliseconds("lease", options.get("lease", 30.0)) or 0,
        _boolean(options, "renew", True),
        None if timeout_ms is None else timeout_ms / 1000,
        inf if max_hold_ms is None else max_hold_ms / 1000,
        _share(options),
        _owner(options),
        on_lost,
    )


def raw_key(key: Any) -> bytes:
    if not isinstance(key, (str, bytes)):
        raise TypeError(f"the key of a lock must be text or bytes, not {key!r}")
    if not key:
        raise ValueError("the key of a lock must not be empty: all users of an empty key would share one lock")
    return key.encode() if isinstance(key, str) else key


def milliseconds(name: str, seconds: Any, may_be_zero: bool = False, may_be_infinite: bool = False) -> Optional[int]:
    """Rounded up. None: without end."""
    if isinstance(seconds, bool) or not isinstance(seconds, (float, int, Real)):
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")
    value = float(seconds)
    if value == inf and may_be_infinite:
        return None
    if not 0 <= value < inf or (value == 0 and not may_be_zero):
        least = "0 seconds or more" if may_be_zero else "more than 0 seconds"
        raise ValueError(f"{name} must be {least}, not {seconds!r}")
    return int(value) * 1000 if value > 1e15 else ceil(round(value * 1000, 6))


def _boolean(options: Mapping[str, Any], name: str, default: bool) -> bool:
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def _share(options: Mapping[str, Any]) -> Tuple[Union[bytes, int], ...]:
    is_shared, limit = _boolean(options, "shared", False), options.get("limit", 1)
    if is_shared and "limit" in options:
        raise ValueError("shared and limit exclude each other: a shared lock has any number of holders")
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit must be a whole number, not {limit!r}")
    if not 1 <= limit < 2**31:
        raise ValueError(f"limit must be 1 to 2147483647, not {limit}")
    return (b"SHARED",) if is_shared else (b"LIMIT", limit) if limit != 1 else ()


def _owner(options: Mapping[str, Any]) -> str:
    owner = options.get("owner", "")
    if not isinstance(owner, str):
        raise TypeError(f"owner must be text, not {owner!r}")
    if not (1 if "owner" in options else 0) <= len(owner.encode()) <= 512:
        raise ValueError("owner must have 1 to 512 bytes")
    return owner


_DEFAULT = _checked({})
