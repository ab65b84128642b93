//! What a client does: the rules for authors of clients, see docs/client-authors.md.

use super::message::{Answer, Connection, Kind, Link, Ms, Sending, ToClient, ToServer};
use super::setting::Breach;

#[derive(Clone, Hash)]
pub struct Client {
    /// Its place among the clients.
    pub id: u8,
    pub requests: Vec<Request>,
    /// The number of the name of its inbox.
    pub name: u8,
    /// Another one, if somebody else uses that.
    spare_name: Option<u8>,
    /// Of the last reply to a call: 0 until it has an inbox.
    pub cursor: u64,
    /// When the call was sent whose reply it waits for.
    pub called_at: Option<Ms>,
    pub connection: Connection,
    pub reader: Connection,
    /// What it sent on connections that were lost, and may still arrive.
    pub late: Vec<ToServer>,
    /// In which tick it died, or the last message arrived from it after; ticks without clients do not count.
    pub died_at: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    Idle,
    /// Sent, and not ended.
    Open(Open),
    /// The client believes in its hold until then.
    Held {
        until: Ms,
    },
    /// A RELEASE is under way, of a hold or of a request that waits.
    Releasing,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    pub last: Sending,
    pub reply: Replied,
    /// When it was sent last, if that matters.
    at: Ms,
}

/// The reply to the last sending of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replied {
    Nothing,
    Queued,
    NoInbox,
}

/// What a client could not do: its inbox is somebody else's.
pub struct HasNoInbox;

/// The present, and the rule that clients break.
#[derive(Clone, Copy)]
pub struct Present {
    pub now: Ms,
    pub breach: Option<Breach>,
}

impl Client {
    pub fn new(id: u8, requests: usize) -> Self {
        Self {
            id,
            requests: vec![Request::Idle; requests],
            name: id,
            spare_name: None,
            cursor: 0,
            called_at: None,
            connection: Connection::new(),
            reader: Connection::new(),
            late: Vec::new(),
            died_at: None,
        }
    }

    /// Begins with a name that another client has too.
    pub fn share_name(&mut self) {
        (self.name, self.spare_name) = (0, Some(1));
    }

    pub fn is_alive(&self) -> bool {
        self.died_at.is_none()
    }

    pub fn link(&mut self, link: Link) -> &mut Connection {
        match link {
            Link::Requests => &mut self.connection,
            Link::Reader => &mut self.reader,
        }
    }

    /// Sends an ACQUIRE, again or for the first time.
    pub fn acquire(&mut self, request: u8, present: Present) {
        let place = usize::from(request);
        let sending = match self.requests[place] {
            Request::Open(_) => Sending::Repeat,
            _ => Sending::First,
        };
        self.connection.supersede_acquire(request);
        let keeps_time = present.breach == Some(Breach::DeadlineFromLastSending);
        self.requests[place] = Request::Open(Open {
            last: sending,
            reply: Replied::Nothing,
            at: if keeps_time { present.now } else { 0 },
        });
        let at = present.now;
        self.connection.send(ToServer::Acquire { request, sending, at });
    }

    pub fn release(&mut self, request: u8) {
        self.connection.supersede_release(request);
        self.requests[usize::from(request)] = Request::Releasing;
        self.send_release(request);
    }

    fn send_release(&mut self, request: u8) {
        let sending = Sending::First;
        self.connection.send(ToServer::Release { request, sending });
    }

    /// Sends a GRANTS with this cursor.
    pub fn call(&mut self, cursor: u64, now: Ms) {
        self.cursor = cursor;
        self.called_at = Some(now);
        self.reader.send(ToServer::Grants { cursor });
    }

    fn repeat_open(&mut self, present: Present) {
        for request in 0..self.requests.len() {
            if let Request::Open(_) = self.requests[request] {
                self.acquire(request as u8, present);
            }
        }
    }

    /// Whether it may send its first request: who may have the name of another one waits until it has an inbox.
    pub fn may_ask(&self) -> bool {
        self.spare_name.is_none() || self.cursor != 0
    }

    /// Whether it may send this request again: it found no inbox, and now there is one.
    pub fn may_ask_again(&self, open: Open) -> bool {
        open.reply == Replied::NoInbox && self.cursor != 0
    }

    /// Reads a message of the server.
    pub fn read(&mut self, message: ToClient, present: Present) -> Result<(), HasNoInbox> {
        match message {
            ToClient::Granted {
                request,
                lease_ms,
                at,
            } => {
                // A request that is being withdrawn needs no release of its own: that was sent after it.
                let state = &mut self.requests[usize::from(request)];
                if let Request::Open(_) = state {
                    let until = at + lease_ms;
                    *state = Request::Held { until };
                }
            }
            ToClient::Queued { request, sending } => {
                self.read_reply(request, sending, Replied::Queued, present);
            }
            ToClient::NoInbox { request, sending } => {
                self.read_reply(request, sending, Replied::NoInbox, present);
            }
            ToClient::Released { request, sending } => {
                let state = &mut self.requests[usize::from(request)];
                if *state == Request::Releasing && counts(sending, present) {
                    *state = Request::Done;
                }
            }
            ToClient::NoInboxOrOldCursor => self.call(0, present.now),
            ToClient::Busy => {
                self.name = self.spare_name.take().ok_or(HasNoInbox)?;
                self.call(0, present.now);
            }
            ToClient::Unblocked => self.called_at = None,
            ToClient::Answers {
                cursor,
                waited_ms,
                answers,
            } => self.read_answers(cursor, waited_ms, &answers, present),
        }
        Ok(())
    }

    fn read_reply(&mut self, request: u8, sending: Sending, reply: Replied, present: Present) {
        if let Request::Open(open) = &mut self.requests[usize::from(request)]
            && counts(sending, present)
        {
            open.reply = reply;
        }
    }

    fn read_answers(&mut self, cursor: u64, waited_ms: Ms, answers: &[Answer], present: Present) {
        let has_new_inbox = std::mem::replace(&mut self.cursor, cursor) == 0;
        let called_at = self.called_at.take().expect("a call");
        if has_new_inbox && present.breach != Some(Breach::NotRepeatedInNewInbox) {
            self.repeat_open(present);
        }
        for answer in answers {
            if answer.client != self.id {
                self.read_foreign(*answer);
                continue;
            }
            let state = self.requests[usize::from(answer.request)];
            match (answer.kind, state) {
                (Kind::Granted { lease_ms, queued_ms }, _) => {
                    let until = match (present.breach, state) {
                        (Some(Breach::DeadlineFromLastSending), Request::Open(open)) => {
                            open.at + queued_ms + lease_ms
                        }
                        (Some(Breach::DeadlineFromReading), _) => present.now + lease_ms,
                        _ => called_at + waited_ms + lease_ms,
                    };
                    self.granted(answer.request, until, present);
                }
                (Kind::Replaced, Request::Open(_)) => self.acquire(answer.request, present),
                (Kind::Ended, Request::Open(open)) => {
                    let is_withdrawn =
                        open.last == Sending::Repeat && present.breach != Some(Breach::SettledNotWithdrawn);
                    if is_withdrawn {
                        self.release(answer.request);
                    } else {
                        self.requests[usize::from(answer.request)] = Request::Done;
                    }
                }
                (Kind::Ended | Kind::Replaced, _) => {}
            }
        }
    }

    /// The inbox is that of another client too.
    fn read_foreign(&mut self, answer: Answer) {
        let Answer {
            client,
            request,
            kind,
        } = answer;
        if let Kind::Granted { .. } = kind {
            self.connection.send(ToServer::ReleaseForeign { client, request });
        }
    }

    fn granted(&mut self, request: u8, until: Ms, present: Present) {
        let state = &mut self.requests[usize::from(request)];
        match state {
            Request::Open(open)
                if present.breach == Some(Breach::KnownFromReplyOnly) && open.reply == Replied::Nothing =>
            {
                self.send_release(request);
            }
            Request::Open(_) => *state = Request::Held { until },
            Request::Held { .. } => {
                if present.breach == Some(Breach::HeldGrantReleased) {
                    self.send_release(request);
                }
            }
            Request::Idle | Request::Releasing | Request::Done => {
                if present.breach != Some(Breach::UnknownGrantKept) {
                    self.release(request);
                }
            }
        }
    }

    /// Notices that a connection is lost, and opens the next one.
    pub fn reconnect(&mut self, link: Link, present: Present) {
        *self.link(link) = Connection::new();
        match link {
            Link::Reader => self.give_up_call(present),
            Link::Requests => self.repeat_unanswered(present),
        }
    }

    /// The reply to its call will not come.
    pub fn give_up_call(&mut self, present: Present) {
        self.called_at = None;
        if present.breach == Some(Breach::CallBeginsAgain) {
            self.cursor = 0;
        }
    }

    fn repeat_unanswered(&mut self, present: Present) {
        for request in 0..self.requests.len() {
            match self.requests[request] {
                Request::Open(Open {
                    reply: Replied::Nothing,
                    ..
                }) if present.breach != Some(Breach::UnansweredNotRepeated) => {
                    self.acquire(request as u8, present);
                }
                Request::Releasing if present.breach != Some(Breach::ReleaseNotRepeated) => {
                    self.release(request as u8);
                }
                _ => {}
            }
        }
    }

    /// A connection is lost. What it carried to the server may still arrive: in any order, at any time, or never.
    pub fn lose(&mut self, link: Link) {
        let lost = std::mem::replace(self.link(link), Connection::lost());
        let sent = lost.to_server.into_iter().map(ToServer::without_reply);
        self.late.extend(sent);
        self.late.sort_unstable();
        self.late.dedup();
    }

    /// SIGKILL.
    pub fn die(&mut self, tick: u32) {
        self.lose(Link::Requests);
        self.lose(Link::Reader);
        self.died_at = Some(tick);
        self.requests.fill(Request::Done);
        self.called_at = None;
        self.cursor = 0;
    }

    /// Another server takes over: what was sent to this one never arrives.
    pub fn lose_server(&mut self) {
        self.connection = Connection::lost();
        self.reader = Connection::lost();
        self.late.clear();
    }
}

fn counts(sending: Sending, present: Present) -> bool {
    sending != Sending::Superseded || present.breach == Some(Breach::AnyReplyCounts)
}
