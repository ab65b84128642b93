//! What can happen in a world, and which rule is left out.

/// A tick begins with the passes that the server still has for requests that have arrived when the time of an inbox is
/// over. Clients act after them.
pub const TICK_MS: u32 = 150;
pub const PASSES: u32 = 4;
pub const PASS_MS: u32 = 10;
pub const CLIENTS_ACT_MS: u32 = PASSES * PASS_MS;
/// Three ticks, whether it begins with a pass or after them.
pub const LEASE_MS: u64 = 400;
/// A tick each.
pub const TTL_MS: u64 = 100;
pub const CALL_MS: u64 = 100;

/// X holds the lock at first, and releases it at any time. In [`Setting::default`] nothing fails.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// How many clients there are in full, at most two. Beside a single one there is C, which blocks and never fails.
    pub clients: usize,
    /// How many requests each of them makes for the lock, each for another owner, at most two.
    pub requests: usize,
    /// The world ends after this many ticks.
    pub ticks: u32,
    /// How often a connection is lost, a client dies, or the server is replaced. Clients are alike: only the first one
    /// meets faults.
    pub faults: u8,
    /// How many ticks clients are paused.
    pub pauses: u8,
    /// A client may die.
    pub kills: bool,
    /// A replica that has all holds may take over.
    pub failovers: bool,
    /// Requests may time out.
    pub timeouts: bool,
    pub second_name: SecondName,
    /// What the module does after a transition happens later: replies to calls that waited, what an inbox leaves, and
    /// grants that are rolled back.
    pub deferred: bool,
    pub breach: Option<Breach>,
}

/// What the second client knows at first of the inbox of the first one, which reads it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondName {
    /// Nothing: it has its own.
    Own,
    /// Its name, which is also the first that the second client tries.
    Same,
    /// Name and cursor: it is a fork of the first one.
    Forked,
}

/// A rule that is broken on purpose, to show that it is needed and that the search detects the breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    // Of clients.
    /// A request whose reply was lost is not sent again.
    UnansweredNotRepeated,
    /// A release or a withdrawal whose reply was lost is not sent again.
    ReleaseNotRepeated,
    /// The reply to any sending of a request counts, not only that to the last one.
    AnyReplyCounts,
    /// Open requests are not sent again when a new inbox was made.
    NotRepeatedInNewInbox,
    /// A request that found no inbox is not sent again.
    NotRepeatedAfterNoInbox,
    /// A grant that nobody waits for is not released.
    UnknownGrantKept,
    /// A grant that is held already is released as unknown.
    HeldGrantReleased,
    /// The client knows of a request only when its reply says that it waits.
    KnownFromReplyOnly,
    /// A request that was sent more than once and ends without a grant is not withdrawn.
    SettledNotWithdrawn,
    /// A call whose reply was lost is followed by one that begins with cursor 0.
    CallBeginsAgain,
    /// The local deadline of a grant counts from the last sending of the request, with the time that this waited.
    DeadlineFromLastSending,
    /// ... from when the grant is read.
    DeadlineFromReading,
    // Of the server.
    /// An answer is gone once a reply carried it.
    NoCursor,
    /// An unknown cursor is taken for the current one.
    AnyCursorAccepted,
    /// Each inbox counts its cursors from 1.
    CursorsBeginAgain,
    /// Cursor 0 also reads an inbox that somebody reads already.
    ReadInboxNotBusy,
    /// GRANTS makes an inbox that does not exist, whatever its cursor is.
    GrantsMakesInbox,
    /// QUEUE makes an inbox that does not exist.
    QueueMakesInbox,
    /// A request that is repeated goes to the end of the queue.
    RepeatLosesPlace,
    /// A grant that no reply carried outlives its inbox.
    UnreadGrantKept,
    /// A grant that a reply carried, and nobody acknowledged, ends with its inbox.
    SentGrantRolledBack,
    /// A grant that the reply to a repeated request carried ends with its inbox, unless a call has read it.
    RepeatedGrantRolledBack,
    /// A grant that the reply to a repeated request carried leaves the inbox.
    RepeatedGrantTakenOut,
    /// An inbox never ends.
    NoTtl,
    /// The time of an inbox runs while clients are paused.
    TtlRunsInPauses,
    /// A call waits until there is an answer.
    UnboundedCall,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            clients: 1,
            requests: 1,
            ticks: 2,
            faults: 0,
            pauses: 0,
            kills: true,
            failovers: true,
            timeouts: true,
            second_name: SecondName::Own,
            deferred: false,
            breach: None,
        }
    }
}
