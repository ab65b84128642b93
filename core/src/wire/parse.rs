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

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire<'a>(args: &[&'a str]) -> Result<Acquire<'a>, Error> {
        Acquire::parse(args.iter().map(|arg| arg.as_bytes()), 1_000)
    }

    fn release<'a>(args: &[&'a str]) -> Result<Release<'a>, Error> {
        Release::parse(args.iter().map(|arg| arg.as_bytes()))
    }

    /// The first is the inbox.
    fn grants<'a>(args: &[&'a str]) -> Result<Grants<'a>, Error> {
        let mut args = args.iter().map(|arg| arg.as_bytes());
        Grants::parse(args.next().unwrap(), args)
    }

    fn extend<'a>(args: &[&'a str]) -> Result<Extend<'a>, Error> {
        Extend::parse(args.iter().map(|arg| arg.as_bytes()), 1_000)
    }

    #[test]
    fn acquire_options_are_accepted_in_any_order_and_case() {
        let expected = Acquire {
            owner: b"alice",
            lease_ms: 10,
            limit: Limit::new(3).unwrap(),
            wait: None,
            request_id: Some(b"r1"),
            min_fence: Some(7),
        };
        assert_eq!(
            acquire(&["alice", "10", "LIMIT", "3", "REQID", "r1", "MINFENCE", "7"]),
            Ok(expected)
        );
        assert_eq!(
            acquire(&["alice", "10", "minFence", "7", "reqid", "r1", "Limit", "3"]),
            Ok(expected)
        );
        assert_eq!(
            acquire(&["alice", "10", "shared"]).map(|a| a.limit),
            Ok(Limit::SHARED)
        );
        assert_eq!(acquire(&["alice", "10"]).map(|a| a.limit), Ok(Limit::MUTEX));
    }

    #[test]
    fn unknown_repeated_or_valueless_option_is_rejected() {
        use Error::*;
        let rows: &[(&[&str], Error)] = &[
            (&["a", "1", "NX"], unknown(b"NX", Acquire::SYNTAX)),
            (&["a", "1", ""], unknown(b"", Acquire::SYNTAX)),
            (&["a", "1", "SHARED", "SHARED"], Repeated("SHARED")),
            (&["a", "1", "LIMIT", "2", "LIMIT", "2"], Repeated("LIMIT")),
            (&["a", "1", "REQID", "x", "REQID", "x"], Repeated("REQID")),
            (&["a", "1", "SHARED", "LIMIT", "2"], Conflict("SHARED", "LIMIT")),
            (&["a", "1", "LIMIT"], MissingValue("LIMIT")),
            (&["a", "1", "REQID"], MissingValue("REQID")),
            (&["a"], MissingArgument(Acquire::SYNTAX)),
            (&[], MissingArgument(Acquire::SYNTAX)),
        ];
        for (args, error) in rows {
            assert_eq!(acquire(args), Err(error.clone()), "{args:?}");
        }
        assert_eq!(
            release(&["a", "ALL", "REQID", "x"]),
            Err(Conflict("ALL", "REQID"))
        );
        assert_eq!(release(&["a", "ALL", "ALL"]), Err(Repeated("ALL")));
        assert_eq!(
            release(&["a", "SHARED"]),
            Err(unknown(b"SHARED", Release::SYNTAX))
        );
    }

    #[test]
    fn unknown_option_is_named_up_to_64_bytes_printable() {
        let text = |option: &str| acquire(&["a", "1", option]).unwrap_err().to_string();
        let syntax = format!("the syntax is: {}", Acquire::SYNTAX);
        assert_eq!(text("NX\r\n"), format!("ERR unknown option 'NX\\r\\n', {syntax}"));
        let long = "x".repeat(64);
        assert_eq!(
            text(&format!("{long}x")),
            format!("ERR unknown option '{long}...', {syntax}")
        );
    }

    #[test]
    fn numbers_outside_plain_decimal_range_are_rejected() {
        for text in [
            "",
            "0",
            "01",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1e3",
            "0x1",
            "1.0",
            "1001",
            "18446744073709551616",
            "¹",
        ] {
            let error = Error::Number {
                what: "lease-ms",
                min: 1,
                max: 1_000,
            };
            assert_eq!(acquire(&["a", text]), Err(error), "{text:?}");
        }
        assert_eq!(acquire(&["a", "1000"]).map(|a| a.lease_ms), Ok(1_000));
        for text in ["0", "2147483648", "-1"] {
            assert!(acquire(&["a", "1", "LIMIT", text]).is_err(), "{text:?}");
        }
        assert!(acquire(&["a", "1", "LIMIT", "2147483647"]).is_ok());
        assert!(release(&["a", "FENCE", "9007199254740991"]).is_ok());
        for text in ["0", "9007199254740992", ""] {
            assert!(release(&["a", "FENCE", text]).is_err(), "{text:?}");
            assert!(acquire(&["a", "1", "MINFENCE", text]).is_err(), "{text:?}");
            assert!(extend(&["a", "1", "MINFENCE", text]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn owner_and_request_id_lengths_are_limited() {
        let (longest, too_long) = ("o".repeat(512), "o".repeat(513));
        assert!(acquire(&[&longest, "1"]).is_ok());
        for owner in ["", &too_long] {
            assert_eq!(
                acquire(&[owner, "1"]),
                Err(Error::Length {
                    what: "owner",
                    max: 512
                })
            );
        }
        let (longest, too_long) = ("r".repeat(64), "r".repeat(65));
        assert!(acquire(&["a", "1", "REQID", &longest]).is_ok());
        for id in ["", &too_long] {
            assert_eq!(
                acquire(&["a", "1", "REQID", id]),
                Err(Error::Length {
                    what: "REQID",
                    max: 64
                })
            );
        }
    }

    #[test]
    fn extend_parses_current_fence_or_request_id() {
        assert_eq!(extend(&["a", "1"]).map(|e| e.grant), Ok(GrantRef::Current));
        assert_eq!(
            extend(&["a", "1", "fence", "7"]).map(|e| e.grant),
            Ok(GrantRef::Fence(7))
        );
        assert_eq!(
            extend(&["a", "1", "REQID", "x"]).map(|e| e.grant),
            Ok(GrantRef::RequestId(b"x"))
        );
        assert_eq!(
            extend(&["a", "1", "REQID", "x", "FENCE", "7"]),
            Err(Error::Conflict("FENCE", "REQID"))
        );
    }

    #[test]
    fn release_parses_one_all_and_by_id() {
        assert_eq!(release(&["a"]).map(|r| r.holds), Ok(Holds::One));
        assert_eq!(release(&["a", "all"]).map(|r| r.holds), Ok(Holds::All));
        assert_eq!(
            release(&["a", "REQID", "x", "FENCE", "7"]).map(|r| (r.holds, r.fence)),
            Ok((Holds::ById(b"x"), Some(7)))
        );
    }

    #[test]
    fn block_and_queue_parse_how_the_request_waits() {
        let (forever, ms) = (Timeout::Infinite, Timeout::Ms);
        let block = |timeout| Wait { timeout, inbox: None };
        let queue = |inbox, timeout| Wait {
            timeout,
            inbox: Some(inbox),
        };
        let rows: &[(&[&str], Wait<'_>)] = &[
            (&["BLOCK", "0"], block(forever)),
            (&["block", "4503599627370496"], block(ms(1 << 52))),
            (&["QUEUE", "inbox", "0"], queue(b"inbox", forever)),
            (&["Queue", "inbox", "1"], queue(b"inbox", ms(1))),
            (
                &["QUEUE", "inbox", "4503599627370496"],
                queue(b"inbox", ms(1 << 52)),
            ),
            // Whatever it looks like.
            (&["QUEUE", "BLOCK", "7"], queue(b"BLOCK", ms(7))),
        ];
        for (wait, expected) in rows {
            let args = [&["a", "1", "REQID", "r1"], *wait].concat();
            assert_eq!(acquire(&args).map(|a| a.wait), Ok(Some(*expected)), "{wait:?}");
        }
        assert_eq!(acquire(&["a", "1"]).map(|a| a.wait), Ok(None));
    }

    #[test]
    fn queue_without_reqid_or_with_other_arguments_is_rejected() {
        use Error::*;
        let number = |what| Number {
            what,
            min: 0,
            max: 1 << 52,
        };
        let rows: &[(&[&str], Error)] = &[
            (&["QUEUE", "i", "0"], QueueWithoutId),
            (&["QUEUE"], MissingValue("QUEUE")),
            (&["REQID", "r", "QUEUE", "i"], MissingValue("QUEUE")),
            (&["REQID", "r", "QUEUE", "i", "-1"], number("QUEUE")),
            (&["REQID", "r", "QUEUE", "i", "4503599627370497"], number("QUEUE")),
            (&["BLOCK", "4503599627370497"], number("BLOCK")),
            // The inbox is missing: REQID is the timeout.
            (&["QUEUE", "5", "REQID", "r"], number("QUEUE")),
            (
                &["REQID", "r", "QUEUE", "i", "0", "BLOCK", "0"],
                Conflict("BLOCK", "QUEUE"),
            ),
            (
                &["REQID", "r", "QUEUE", "i", "0", "QUEUE", "j", "0"],
                Repeated("QUEUE"),
            ),
        ];
        for (options, error) in rows {
            let args = [&["a", "1"], *options].concat();
            assert_eq!(acquire(&args), Err(error.clone()), "{options:?}");
        }
    }

    #[test]
    fn inbox_length_is_limited() {
        let (longest, too_long) = ("i".repeat(64), "i".repeat(65));
        let queue = |inbox| acquire(&["a", "1", "REQID", "r", "QUEUE", inbox, "0"]).map(|_| ());
        let read = |inbox| grants(&[inbox, "0"]).map(|_| ());
        assert_eq!((queue(&longest), read(&longest)), (Ok(()), Ok(())));
        for inbox in ["", &too_long] {
            let error = Err(Error::Length {
                what: "inbox",
                max: 64,
            });
            assert_eq!((queue(inbox), read(inbox)), (error.clone(), error), "{inbox:?}");
        }
    }

    #[test]
    fn grants_options_are_accepted_in_any_order_and_case() {
        let expected = Grants {
            inbox: b"i",
            cursor: 7,
            block_ms: Some(2_000),
            ttl_ms: Some(100),
        };
        assert_eq!(grants(&["i", "7", "BLOCK", "2000", "TTL", "100"]), Ok(expected));
        assert_eq!(grants(&["i", "7", "ttl", "100", "Block", "2000"]), Ok(expected));
        assert_eq!(
            grants(&["i", "7"]).map(|g| (g.block_ms, g.ttl_ms)),
            Ok((None, None))
        );
    }

    #[test]
    fn unknown_repeated_or_valueless_option_of_grants_is_rejected() {
        use Error::*;
        let rows: &[(&[&str], Error)] = &[
            (&["i"], MissingArgument(Grants::SYNTAX)),
            (&["i", "1", "COUNT", "2"], unknown(b"COUNT", Grants::SYNTAX)),
            (&["i", "1", "BLOCK"], MissingValue("BLOCK")),
            (&["i", "1", "TTL"], MissingValue("TTL")),
            (&["i", "1", "BLOCK", "1", "BLOCK", "1"], Repeated("BLOCK")),
            (&["i", "1", "TTL", "0", "TTL", "0"], Repeated("TTL")),
        ];
        for (args, error) in rows {
            assert_eq!(grants(args), Err(error.clone()), "{args:?}");
        }
    }

    #[test]
    fn numbers_of_grants_are_limited() {
        let cursor = |text| grants(&["i", text]).map(|g| g.cursor).ok();
        let block = |text| grants(&["i", "1", "BLOCK", text]).ok()?.block_ms;
        let ttl = |text| grants(&["i", "1", "TTL", text]).ok()?.ttl_ms;
        assert_eq!([cursor("0"), block("1"), ttl("0")], [Some(0), Some(1), Some(0)]);
        assert_eq!(cursor("9007199254740991"), Some((1 << 53) - 1));
        assert_eq!([block("60000"), ttl("60000")], [Some(60_000); 2]);
        assert_eq!(ttl("100"), Some(100));
        for text in ["", "-1", "00", "01", "1.5", "9007199254740992"] {
            assert_eq!([cursor(text), block(text), ttl(text)], [None; 3], "{text:?}");
        }
        assert_eq!([block("0"), block("60001")], [None; 2]);
        assert_eq!([ttl("1"), ttl("99"), ttl("60001")], [None; 3]);
    }
}
