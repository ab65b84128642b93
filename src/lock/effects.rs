//! What a step wants done, as plain data. The shell does it, in this order: replicate, reply, announce.

use super::encoding::Writer;
use super::state::Holder;
use super::step::Moment;

/// How a step reaches replicas and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// Nothing changed.
    #[default]
    Nothing,
    /// The request as it came: replaying it needs no clock and gives the same state.
    Verbatim,
    /// The change that [`Effects::change`] spells out.
    Change,
}

/// What keyspace events are told, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An owner became a holder.
    Acquired,
    /// A holder gave up its last hold.
    Released,
    /// A lease was extended.
    Extended,
    /// A holder whose lease had ended was removed.
    Expired,
}

/// The effects of one step. Reused from step to step, so that a step allocates nothing for them.
#[derive(Debug, Default)]
pub struct Effects {
    pub replication: Replication,
    pub events: Vec<Event>,
    change: Writer,
}

impl Effects {
    pub const fn new() -> Self {
        Self {
            replication: Replication::Nothing,
            events: Vec::new(),
            change: Writer::new(),
        }
    }

    pub fn clear(&mut self) {
        self.replication = Replication::Nothing;
        self.events.clear();
        self.change.clear();
    }

    /// The change in the encoding that `apply` reads.
    pub fn change(&self) -> &[u8] {
        self.change.as_bytes()
    }

    pub(super) fn acquired(&mut self, holder: &Holder, moment: &Moment) {
        self.events.push(Event::Acquired);
        self.updated(holder, moment);
    }

    pub(super) fn extended(&mut self) {
        self.events.push(Event::Extended);
    }

    /// The holder is now as it stands here: another hold, fewer holds, or a longer lease.
    pub(super) fn updated(&mut self, holder: &Holder, moment: &Moment) {
        self.replication = Replication::Change;
        self.change.holder(holder, moment);
    }

    pub(super) fn released(&mut self, owner: &[u8]) {
        self.events.push(Event::Released);
        self.replication = Replication::Change;
        self.change.released(owner);
    }

    pub(super) fn expired(&mut self, owner: &[u8]) {
        self.events.push(Event::Expired);
        self.replication = Replication::Change;
        self.change.expired(owner);
    }
}
