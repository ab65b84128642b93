//! The reader of an inbox: all that its state does.
//!
//! It is in one state at a time:
//!
//! ```text
//! blocked  -> replying   there is an answer, or the time of the call is over
//!          -> absent     its connection was lost, or another call took over
//! replying -> absent     the reply was written: only now its answers count as carried by a reply
//! absent   -> ended      nobody has called for a whole ttl
//! ```

use super::named::Reader;
use super::{Inbox, Inboxes};
use crate::names::{Call, InboxId};
use crate::time::Instant;

/// How often the server has a pass of its loop for requests that have arrived when the time of an inbox is over: one to
/// accept a connection, one to read it, and some in which other clients keep it.
const LAST_PASSES: u8 = 4;

/// How long a pass takes at least: more than what the module does in one. A slower one counts once, too.
const PASS_MS: u64 = 10;

impl Inboxes {
    /// What the reader of an inbox does from now on.
    pub(super) fn set_reader(&mut self, id: InboxId, reader: Reader) {
        let Some(Inbox::Named(named)) = self.by_id.get_mut(&id) else {
            return;
        };
        let former = std::mem::replace(&mut named.reader, reader);
        self.forget_reader(id, former);
        match reader {
            Reader::Blocked { call, until, .. } => {
                self.calls.insert(call, id);
                self.call_ends.insert((until, id));
            }
            Reader::Replying { call, .. } => {
                self.calls.insert(call, id);
            }
            Reader::Absent { until, .. } => {
                self.absence_ends.insert((until, id));
            }
        }
    }

    pub(super) fn forget_reader(&mut self, id: InboxId, reader: Reader) {
        match reader {
            Reader::Blocked { call, until, .. } => {
                self.calls.remove(&call);
                self.call_ends.remove(&(until, id));
            }
            Reader::Replying { call, .. } => {
                self.calls.remove(&call);
            }
            Reader::Absent { until, .. } => {
                self.absence_ends.remove(&(until, id));
            }
        }
    }

    /// The call that waits for answers in this inbox gets its reply now, if one waits.
    pub(super) fn wake_reader(&mut self, id: InboxId) -> Option<Call> {
        let Reader::Blocked { call, since, .. } = self.named(id)?.reader else {
            return None;
        };
        self.set_reader(id, Reader::Replying { call, since });
        Some(call)
    }

    /// Nobody reads this inbox from now on.
    pub(super) fn reader_left(&mut self, id: InboxId, now: Instant) {
        let clock = self.pauses.clock(now);
        let Some(named) = self.named(id) else {
            return;
        };
        if named.ttl_ms == 0 {
            self.end(id);
            return;
        }
        let until = clock.after_ms(named.ttl_ms);
        self.set_reader(
            id,
            Reader::Absent {
                until,
                passes_left: LAST_PASSES,
            },
        );
    }

    /// Nobody has read this inbox for its whole time to live: it ends after some more passes of the server's loop.
    pub(super) fn end_absence(&mut self, id: InboxId, now: Instant) {
        let until = self.pauses.clock(now).after_ms(PASS_MS);
        let reader = self.named(id).map(|named| named.reader);
        if let Some(Reader::Absent { passes_left, .. }) = reader
            && let Some(passes_left) = passes_left.checked_sub(1)
        {
            self.set_reader(id, Reader::Absent { until, passes_left });
        } else {
            self.end(id);
        }
    }
}
