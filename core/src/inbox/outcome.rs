//! What comes of calls and of time.

use super::answers::Answered;
use crate::effects::Answer;
use crate::names::{Call, LockName, Ticket};

/// The reply to a GRANTS.
#[derive(Clone, Debug)]
pub struct GrantsReply {
    /// Acknowledges these answers in the next call.
    pub cursor: u64,
    /// How long the call waited, rounded down.
    pub waited_ms: u64,
    /// The answers that are not acknowledged, oldest first: as many as a reply carries.
    pub answers: Vec<Answered>,
}

/// What became of a GRANTS. `former`: an earlier call of this inbox, which is over now.
#[derive(Clone, Debug)]
pub enum Received {
    /// It gets its reply now.
    Replied {
        /// The reply.
        reply: GrantsReply,
        /// See above.
        former: Option<Call>,
    },
    /// It waits for answers: its client is to be blocked.
    Waits {
        /// Its name.
        call: Call,
        /// See above.
        former: Option<Call>,
    },
}

/// The reply to a call that waited.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To the client of a BLOCK.
    Answer(Answer),
    /// To a GRANTS.
    Grants(GrantsReply),
}

/// What was due in inboxes, and is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxStep {
    /// The time of this call is over: it is to be replied to, by [`crate::Inboxes::reply`].
    Reply(Call),
    /// This waiter leaves its queue: its inbox has ended.
    Leave(LockName, Ticket),
    /// An inbox came nearer to its end, or a grant is to be rolled back.
    Done,
}
