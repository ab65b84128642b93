//! How often things have happened: a simulation in which they do not finds nothing.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    pub fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// A command that the server has run, and its reply.
    pub fn note_command(&mut self, words: &[&[u8]], reply: &[u8]) {
        let is_checked = words.get(3) == Some(&&b"FENCE"[..]);
        match words[0] {
            b"DLOCK.ACQUIRE" if reply.starts_with(b"*4") => self.note("granted in a reply"),
            b"DLOCK.ACQUIRE" if reply.starts_with(b"-NOINBOX") => self.note("no inbox"),
            b"DLOCK.RELEASE" if !is_checked => self.note("given back"),
            b"DLOCK.GRANTS" => {
                let granted = reply.windows(9).filter(|words| words == b"\r\ngranted");
                granted.for_each(|_| self.note("granted in an answer"));
            }
            _ => {}
        }
    }

    pub fn add(&mut self, more: Self) {
        for (what, times) in more.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub fn assert_at_least(&self, least: &[(&str, u64)]) {
        for (what, times) in least {
            let noted = self.0.get(what).copied().unwrap_or_default();
            assert!(
                noted >= *times,
                "{what}: {noted} times of {times}, in {:?}",
                self.0
            );
        }
    }
}
