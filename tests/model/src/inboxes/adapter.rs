//! The server, or one without one of its rules: what it is asked, and what it replies, is changed on the way.

use std::hash::{Hash, Hasher};

use super::message::{Answer, Kind, Ms};
use super::server::{Party, Server};
use super::setting::{Breach, CALL_MS, TTL_MS};
use dlock_core::{Acquired, Answered, Call, Error, Grants, GrantsReply, Received, Reply};

/// Longer than any world.
const FOREVER_MS: u64 = 60_000;

#[derive(Clone)]
pub struct Adapter {
    pub server: Server,
    breach: Option<Breach>,
    /// By the numbers of their names.
    inboxes: [Known; 2],
}

/// What is known of an inbox, as far as the broken rule needs it.
#[derive(Clone, Default)]
struct Known {
    /// The cursors of its replies, from the first.
    cursors: Vec<u64>,
    acknowledged: u64,
    /// The grants in the replies that are not acknowledged.
    sent: Vec<(Party, u64)>,
    /// The requests whose holds were replied to a repeated ACQUIRE.
    repeated: Vec<Party>,
}

/// The reply to a call.
pub struct Told {
    pub cursor: u64,
    pub waited_ms: Ms,
    pub answers: Vec<Answer>,
}

/// What became of a call.
pub struct Called {
    /// The one that is over.
    pub former: Option<Call>,
    pub reply: Result<Told, Call>,
}

/// The reply to an ACQUIRE.
pub enum Asked {
    /// With what remains of its lease.
    Granted(Ms),
    Queued,
    NoInbox,
}

/// The reply to a call that waited.
pub enum Waited {
    Told(Told),
    /// To C.
    Granted,
}

impl Adapter {
    pub fn new(now: Ms, breach: Option<Breach>) -> Self {
        Self {
            server: Server::new(now),
            breach,
            inboxes: Default::default(),
        }
    }

    fn breaks(&self, breach: Breach) -> bool {
        self.breach == Some(breach)
    }

    pub fn fail_over(&mut self, now: Ms) {
        self.server.fail_over(now);
        self.inboxes = Default::default();
    }

    pub fn acquire(&mut self, party: Party, name: u8, is_late: bool, now: Ms) -> Asked {
        if self.breaks(Breach::RepeatLosesPlace) && self.server.waiting().contains(&party) {
            self.server.forget_place(party, now);
        }
        let holder = self.server.holder(now);
        let mut acquired = self.server.acquire(party, name, is_late, now);
        if acquired == Err(Error::NoInbox) && self.breaks(Breach::QueueMakesInbox) {
            let _ = self.receive(name, 0, now);
            acquired = self.server.acquire(party, name, is_late, now);
        }
        match acquired {
            Ok(Acquired::Granted(granted)) => {
                if holder == Some(party) && self.breaks(Breach::RepeatedGrantTakenOut) {
                    self.known(name).repeated.push(party);
                }
                Asked::Granted(granted.lease_ms as Ms)
            }
            Ok(_) => Asked::Queued,
            Err(Error::NoInbox) => Asked::NoInbox,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// A GRANTS with BLOCK, or without if its cursor is 0.
    pub fn receive(&mut self, name: u8, cursor: u64, now: Ms) -> Result<Called, Error> {
        let cursor = self.inner(name, cursor);
        let had_inbox = self.server.inbox(name).is_some();
        match self.receive_from(name, cursor, now) {
            Err(Error::NoInbox) if !had_inbox && self.breaks(Breach::GrantsMakesInbox) => {
                let made = self.receive_from(name, 0, now)?;
                let made = made.reply.expect("a reply at once");
                self.receive_from(name, made.cursor, now)
            }
            Err(error) if had_inbox && self.ignores(&error) => {
                let acknowledged = self.known(name).acknowledged;
                self.receive_from(name, acknowledged, now)
            }
            received => received,
        }
    }

    /// Whether the call goes on as if its cursor were the current one.
    fn ignores(&self, error: &Error) -> bool {
        match self.breach {
            Some(Breach::NoCursor) => true,
            Some(Breach::AnyCursorAccepted) => *error == Error::NoInbox,
            Some(Breach::ReadInboxNotBusy) => *error == Error::BusyInbox,
            _ => false,
        }
    }

    fn receive_from(&mut self, name: u8, cursor: u64, now: Ms) -> Result<Called, Error> {
        let forever = |breach, ms| if self.breaks(breach) { FOREVER_MS } else { ms };
        let request = Grants {
            inbox: Server::name_of(name),
            cursor,
            block_ms: (cursor != 0).then_some(forever(Breach::UnboundedCall, CALL_MS)),
            ttl_ms: Some(forever(Breach::NoTtl, TTL_MS)),
        };
        let had_inbox = self.server.inbox(name).is_some();
        let received = self.server.receive(&request, now)?;
        if !had_inbox {
            *self.known(name) = Known::default();
        }
        if self.remembers_cursors() && cursor != 0 {
            self.known(name).acknowledged = cursor;
        }
        self.known(name).sent.clear();
        Ok(match received {
            Received::Replied { reply, former } => Called {
                reply: Ok(self.told(name, &reply, now)),
                former,
            },
            Received::Waits { call, former } => Called {
                reply: Err(call),
                former,
            },
        })
    }

    /// The reply to a call that waited for an inbox, if there is one.
    pub fn reply(&mut self, call: Call, name: u8, now: Ms) -> Option<Waited> {
        Some(match self.server.reply(call, now)? {
            Reply::Grants(reply) => Waited::Told(self.told(name, &reply, now)),
            Reply::Answer(dlock_core::Answer::Granted(_)) => Waited::Granted,
            Reply::Answer(answer) => panic!("{answer:?}"),
        })
    }

    fn told(&mut self, name: u8, reply: &GrantsReply, now: Ms) -> Told {
        let mut answers: Vec<Answer> = Vec::new();
        for answered in &reply.answers {
            let (party, kind) = (Party::of(&answered.owner), kind_of(answered));
            let Party::Request(client, request) = party else {
                panic!("an answer to {party:?}");
            };
            if let dlock_core::Answer::Granted(granted) = &answered.answer {
                if self.breaks(Breach::SentGrantRolledBack) {
                    self.known(name).sent.push((party, granted.fence));
                }
                if self.known(name).repeated.contains(&party) {
                    continue;
                }
            }
            answers.push(Answer {
                client,
                request,
                kind,
            });
        }
        let cursor = self.outer(name, reply.cursor);
        if self.breaks(Breach::NoCursor) && !reply.answers.is_empty() {
            let acknowledges = Grants {
                inbox: Server::name_of(name),
                cursor: reply.cursor,
                block_ms: None,
                ttl_ms: None,
            };
            let _ = self.server.receive(&acknowledges, now);
            self.known(name).acknowledged = reply.cursor;
        }
        Told {
            cursor,
            waited_ms: reply.waited_ms as Ms,
            answers,
        }
    }

    /// The timer, `is_paused` or not, and after it what arrives in one more pass of the server's loop.
    pub fn process(&mut self, is_paused: bool, now: Ms) {
        let is_paused = is_paused && !self.breaks(Breach::TtlRunsInPauses);
        self.server.process(is_paused, now);
    }

    /// A step of what an inbox leaves that has ended. False if there is nothing to do.
    pub fn clear(&mut self, now: Ms) -> bool {
        if self.server.step_inboxes(now) {
            return true;
        }
        if let Some(grant) = self.server.next_undelivered() {
            let is_unclaimed = self.server.state.inboxes.claim(&grant);
            let is_kept = self.breaks(Breach::UnreadGrantKept);
            if (is_unclaimed || self.breaks(Breach::RepeatedGrantRolledBack)) && !is_kept {
                self.server.roll_back(Party::of(&grant.owner), grant.fence, now);
            }
            return true;
        }
        for name in 0..2 {
            if self.server.inbox(name).is_none()
                && let Some((party, fence)) = self.known(name).sent.pop()
            {
                self.server.roll_back(party, fence, now);
                return true;
            }
        }
        false
    }

    pub fn is_clear(&self) -> bool {
        let is_gone = |name: &u8| self.server.inbox(*name).is_none();
        let is_left = (0..2)
            .filter(is_gone)
            .any(|name| !self.inboxes[usize::from(name)].sent.is_empty());
        self.server.is_clear() && !is_left
    }

    fn known(&mut self, name: u8) -> &mut Known {
        &mut self.inboxes[usize::from(name)]
    }

    fn remembers_cursors(&self) -> bool {
        let breaches = [
            Breach::AnyCursorAccepted,
            Breach::CursorsBeginAgain,
            Breach::NoCursor,
            Breach::ReadInboxNotBusy,
        ];
        breaches.iter().any(|breach| self.breaks(*breach))
    }

    /// The cursor that clients get for one of the core.
    fn outer(&mut self, name: u8, cursor: u64) -> u64 {
        if !self.remembers_cursors() {
            return cursor;
        }
        let begins_again = self.breaks(Breach::CursorsBeginAgain);
        let known = self.known(name);
        if known.acknowledged == 0 {
            known.acknowledged = cursor;
        }
        if !begins_again {
            return cursor;
        }
        let place = known.cursors.iter().position(|other| *other == cursor);
        let place = place.unwrap_or_else(|| {
            known.cursors.push(cursor);
            known.cursors.len() - 1
        });
        place as u64 + 1
    }

    /// The cursor of the core for one of a client.
    fn inner(&mut self, name: u8, cursor: u64) -> u64 {
        if !self.breaks(Breach::CursorsBeginAgain) || cursor == 0 {
            return cursor;
        }
        let known = self.known(name);
        known
            .cursors
            .get(cursor as usize - 1)
            .copied()
            .unwrap_or(u64::MAX >> 12)
    }
}

fn kind_of(answered: &Answered) -> Kind {
    match &answered.answer {
        dlock_core::Answer::Granted(granted) => Kind::Granted {
            lease_ms: granted.lease_ms as Ms,
            queued_ms: granted.waited_ms as Ms,
        },
        dlock_core::Answer::TimedOut | dlock_core::Answer::Withdrawn => Kind::Ended,
        dlock_core::Answer::Rejected(Error::Replaced) => Kind::Replaced,
        answer => panic!("{answer:?}"),
    }
}

/// Numbers one by one: see [`super::names`].
impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for cursor in &self.cursors {
            (true, cursor).hash(state);
        }
        (false, self.acknowledged, &self.sent, &self.repeated).hash(state);
    }
}

impl Hash for Adapter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.server.hash(state);
        if self.breach.is_some() {
            self.inboxes.hash(state);
        }
    }
}
