//! Parses requests from the arguments after the key.

use super::{Acquire, Error, Extend, GrantRef, Grants, Guard, Holds, Release, Timeout, Wait};
use crate::fence::MAX_FENCE;
use crate::names::{Limit, MAX_INBOX_BYTES, MAX_OWNER_BYTES, MAX_REQUEST_ID_BYTES, Shortened};

/// The longest timeout, except for an infinite one.
const MAX_TIMEOUT_MS: u64 = 1 << 52;

/// The longest wait of one DLOCK.GRANTS, and the longest time to live of an inbox.
const MAX_CALL_MS: u64 = 60_000;
/// The shortest time to live of an inbox, except for 0.
const MIN_TTL_MS: u64 = 100;

impl<'a> Acquire<'a> {
    /// The syntax of the command. MINFENCE is for the servers of a quorum only.
    pub const SYNTAX: &'static str = "DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms | QUEUE inbox timeout-ms] \
         [REQID id]";

    /// Parses the arguments. `max_lease_ms`: the longest lease that the server allows.
    pub fn parse(args: impl Iterator<Item = &'a [u8]>, max_lease_ms: u64) -> Result<Self, Error> {
        let mut args = Args::new(args, Self::SYNTAX);
        let owner = args.owner()?;
        let lease_ms = args.number("lease-ms", 1, max_lease_ms)?;
        let mut shared = None;
        let mut limit = None;
        let mut block = None;
        let mut queue = None;
        let mut request_id = None;
        let mut min_fence = None;
        while let Some(option) = args.next() {
            if option.eq_ignore_ascii_case(b"SHARED") {
                once("SHARED", &mut shared, ())?;
            } else if option.eq_ignore_ascii_case(b"LIMIT") {
                once("LIMIT", &mut limit, args.limit()?)?;
            } else if option.eq_ignore_ascii_case(b"BLOCK") {
                once("BLOCK", &mut block, args.timeout("BLOCK")?)?;
            } else if option.eq_ignore_ascii_case(b"QUEUE") {
                let inbox = bytes("inbox", args.value("QUEUE")?, MAX_INBOX_BYTES)?;
                once("QUEUE", &mut queue, (inbox, args.timeout("QUEUE")?))?;
            } else if option.eq_ignore_ascii_case(b"REQID") {
                once("REQID", &mut request_id, args.request_id()?)?;
            } else if option.eq_ignore_ascii_case(b"MINFENCE") {
                once("MINFENCE", &mut min_fence, args.fence("MINFENCE")?)?;
            } else {
                return Err(unknown(option, Self::SYNTAX));
            }
        }
        let limit = match (shared, limit) {
            (Some(()), Some(_)) => return Err(Error::Conflict("SHARED", "LIMIT")),
            (Some(()), None) => Limit::SHARED,
            (None, limit) => limit.unwrap_or(Limit::MUTEX),
        };
        let wait = match (block, queue) {
            (Some(_), Some(_)) => return Err(Error::Conflict("BLOCK", "QUEUE")),
            (None, Some(_)) if request_id.is_none() => return Err(Error::QueueWithoutId),
            (None, Some((inbox, timeout))) => Some(Wait {
                timeout,
                inbox: Some(inbox),
            }),
            (timeout, None) => timeout.map(|timeout| Wait { timeout, inbox: None }),
        };
        Ok(Self {
            owner,
            lease_ms,
            limit,
            wait,
            request_id,
            min_fence,
        })
    }
}

impl<'a> Release<'a> {
    /// The syntax of the command.
    pub const SYNTAX: &'static str = "DLOCK.RELEASE key owner [FENCE fence] [ALL | REQID id]";

    /// Parses the arguments.
    pub fn parse(args: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let mut args = Args::new(args, Self::SYNTAX);
        let owner = args.owner()?;
        let mut fence = None;
        let mut all = None;
        let mut request_id = None;
        while let Some(option) = args.next() {
            if option.eq_ignore_ascii_case(b"FENCE") {
                once("FENCE", &mut fence, args.fence("FENCE")?)?;
            } else if option.eq_ignore_ascii_case(b"ALL") {
                once("ALL", &mut all, ())?;
            } else if option.eq_ignore_ascii_case(b"REQID") {
                once("REQID", &mut request_id, args.request_id()?)?;
            } else {
                return Err(unknown(option, Self::SYNTAX));
            }
        }
        let holds = match (all, request_id) {
            (Some(()), Some(_)) => return Err(Error::Conflict("ALL", "REQID")),
            (Some(()), None) => Holds::All,
            (None, Some(id)) => Holds::ById(id),
            (None, None) => Holds::One,
        };
        Ok(Self { owner, fence, holds })
    }
}

impl<'a> Extend<'a> {
    /// The syntax of the command. MINFENCE is for the servers of a quorum only.
    pub const SYNTAX: &'static str = "DLOCK.EXTEND key owner lease-ms [FENCE fence | REQID id]";

    /// `max_lease_ms`: the longest lease that the server allows.
    pub fn parse(args: impl Iterator<Item = &'a [u8]>, max_lease_ms: u64) -> Result<Self, Error> {
        let mut args = Args::new(args, Self::SYNTAX);
        let owner = args.owner()?;
        let lease_ms = args.number("lease-ms", 1, max_lease_ms)?;
        let mut fence = None;
        let mut request_id = None;
        let mut min_fence = None;
        while let Some(option) = args.next() {
            if option.eq_ignore_ascii_case(b"FENCE") {
                once("FENCE", &mut fence, args.fence("FENCE")?)?;
            } else if option.eq_ignore_ascii_case(b"REQID") {
                once("REQID", &mut request_id, args.request_id()?)?;
            } else if option.eq_ignore_ascii_case(b"MINFENCE") {
                once("MINFENCE", &mut min_fence, args.fence("MINFENCE")?)?;
            } else {
                return Err(unknown(option, Self::SYNTAX));
            }
        }
        let grant = match (fence, request_id) {
            (Some(_), Some(_)) => return Err(Error::Conflict("FENCE", "REQID")),
            (None, Some(id)) => GrantRef::RequestId(id),
            (fence, None) => fence.into(),
        };
        Ok(Self {
            owner,
            lease_ms,
            grant,
            min_fence,
        })
    }
}

impl<'a> Guard<'a> {
    /// The syntax of the command.
    pub const SYNTAX: &'static str = "DLOCK.GUARD key owner fence [command [arg ...]]";

    /// Parses the arguments before the inner command.
    pub fn parse(args: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let mut args = Args::new(args, Self::SYNTAX);
        let owner = args.owner()?;
        let fence = args.number("fence", 1, MAX_FENCE)?;
        Ok(Self { owner, fence })
    }
}

impl<'a> Grants<'a> {
    /// The syntax of the command.
    pub const SYNTAX: &'static str = "DLOCK.GRANTS inbox cursor [BLOCK timeout-ms] [TTL ttl-ms]";

    /// Parses the arguments after the name of the inbox.
    pub fn parse(inbox: &'a [u8], args: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let mut args = Args::new(args, Self::SYNTAX);
        let inbox = bytes("inbox", inbox, MAX_INBOX_BYTES)?;
        let cursor = args.number("cursor", 0, MAX_FENCE)?;
        let mut block_ms = None;
        let mut ttl_ms = None;
        while let Some(option) = args.next() {
            if option.eq_ignore_ascii_case(b"BLOCK") {
                let ms = number("BLOCK", args.value("BLOCK")?, 1, MAX_CALL_MS)?;
                once("BLOCK", &mut block_ms, ms)?;
            } else if option.eq_ignore_ascii_case(b"TTL") {
                once("TTL", &mut ttl_ms, args.ttl()?)?;
            } else {
                return Err(unknown(option, Self::SYNTAX));
            }
        }
        Ok(Self {
            inbox,
            cursor,
            block_ms,
            ttl_ms,
        })
    }
}

/// Keeps the value of an option that may be given once.
fn once<T>(option: &'static str, place: &mut Option<T>, value: T) -> Result<(), Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::Repeated(option)),
    }
}

/// A cursor over the arguments.
struct Args<I> {
    args: I,
    syntax: &'static str,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Args<I> {
    fn new(args: I, syntax: &'static str) -> Self {
        Self { args, syntax }
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        self.args.next()
    }

    /// The server has checked the number of arguments.
    fn required(&mut self) -> Result<&'a [u8], Error> {
        self.next().ok_or(Error::MissingArgument(self.syntax))
    }

    fn owner(&mut self) -> Result<&'a [u8], Error> {
        bytes("owner", self.required()?, MAX_OWNER_BYTES)
    }

    fn number(&mut self, what: &'static str, min: u64, max: u64) -> Result<u64, Error> {
        number(what, self.required()?, min, max)
    }

    fn limit(&mut self) -> Result<Limit, Error> {
        let n = number("LIMIT", self.value("LIMIT")?, 1, u64::from(Limit::MAX))?;
        let error = Error::Number {
            what: "LIMIT",
            min: 1,
            max: u64::from(Limit::MAX),
        };
        u32::try_from(n).ok().and_then(Limit::new).ok_or(error)
    }

    /// 0 = without limit.
    fn timeout(&mut self, option: &'static str) -> Result<Timeout, Error> {
        let ms = number(option, self.value(option)?, 0, MAX_TIMEOUT_MS)?;
        Ok(if ms == 0 {
            Timeout::Infinite
        } else {
            Timeout::Ms(ms)
        })
    }

    /// 0 = the inbox ends with the reply.
    fn ttl(&mut self) -> Result<u64, Error> {
        match self.value("TTL")? {
            b"0" => Ok(0),
            ms => number("a TTL other than 0", ms, MIN_TTL_MS, MAX_CALL_MS),
        }
    }

    fn fence(&mut self, option: &'static str) -> Result<u64, Error> {
        number(option, self.value(option)?, 1, MAX_FENCE)
    }

    fn request_id(&mut self) -> Result<&'a [u8], Error> {
        bytes("REQID", self.value("REQID")?, MAX_REQUEST_ID_BYTES)
    }

    fn value(&mut self, option: &'static str) -> Result<&'a [u8], Error> {
        self.next().ok_or(Error::MissingValue(option))
    }
}

fn unknown(option: &[u8], syntax: &'static str) -> Error {
    let option = Shortened(option).to_string();
    Error::UnknownOption { option, syntax }
}

fn bytes<'a>(what: &'static str, value: &'a [u8], max: usize) -> Result<&'a [u8], Error> {
    if (1..=max).contains(&value.len()) {
        Ok(value)
    } else {
        Err(Error::Length { what, max })
    }
}

/// A plain decimal from `min` to `max`: no sign, no space, no leading zero, no exponent.
pub fn number(what: &'static str, text: &[u8], min: u64, max: u64) -> Result<u64, Error> {
    plain_decimal(text)
        .filter(|n| (min..=max).contains(n))
        .ok_or(Error::Number { what, min, max })
}

fn plain_decimal(text: &[u8]) -> Option<u64> {
    match text {
        [] | [b'0', _, ..] => None,
        digits => digits.iter().try_fold(0_u64, |n, &digit| {
            let digit = digit.is_ascii_digit().then_some(digit & 0x0f)?;
            n.checked_mul(10)?.checked_add(u64::from(digit))
        }),
    }
}
