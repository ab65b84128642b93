//! What a separate process records: it prints lines, which this program reads. A process that is killed has printed
//! each request before it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};

use crate::history::{
    Acquire, Call, Forgotten, Limit, Micros, Op, Recorder, Reply, Request, ServerTerm, Wait, now,
};

/// The lines of a process.
#[derive(Default)]
pub struct Journal {
    lines: String,
}

impl Journal {
    /// A request that will be sent, with a number of its own.
    pub fn sent(&mut self, number: u64, op: &Op) {
        let Op {
            owner, key, server, ..
        } = op;
        self.line(format!(
            "sent {number} {owner} {key} {} {} {} {}",
            server.port,
            server.term,
            op.sent,
            request_words(&op.request)
        ));
    }

    /// The reply to a request.
    pub fn replied(&mut self, number: u64, sent: Micros, replied: Micros, reply: &Reply) {
        self.line(format!(
            "replied {number} {sent} {replied} {}",
            reply_words(reply)
        ));
    }

    /// The answer to a request, in a call of GRANTS.
    pub fn answer(&mut self, number: u64, call: &Call, reply: &Reply) {
        let Call {
            server: ServerTerm { port, term },
            sent,
            replied,
            ..
        } = call;
        self.line(format!(
            "answer {number} {port} {term} {sent} {replied} {}",
            reply_words(reply)
        ));
    }

    pub fn call(&mut self, call: &Call) {
        let ServerTerm { port, term } = call.server;
        self.line(format!(
            "call {port} {term} {} {} {} {}",
            call.sent,
            call.replied,
            u8::from(call.made),
            call.answered.join(" ")
        ));
    }

    /// A request that was last sent under this number, and has no answer.
    pub fn forgotten(&mut self, number: u64) {
        self.line(format!("forgotten {number}"));
    }

    fn line(&mut self, line: String) {
        // Errors of servers have no line breaks; anything else must not look like a line.
        self.lines += &line.replace('\n', " ");
        self.lines.push('\n');
    }

    /// Prints all lines.
    pub fn flush(&mut self) {
        let mut output = io::stdout().lock();
        // An error means that the other process has ended, and so will this one.
        let _ = output.write_all(self.lines.as_bytes());
        let _ = output.flush();
        self.lines.clear();
    }
}

/// Reads the lines of one process into a history.
pub struct JournalReader {
    process: String,
    recorder: Recorder,
    ops: BTreeMap<u64, Op>,
    unanswered: BTreeSet<u64>,
}

impl JournalReader {
    pub fn new(process: String, recorder: Recorder) -> Self {
        Self {
            process,
            recorder,
            ops: BTreeMap::new(),
            unanswered: BTreeSet::new(),
        }
    }

    /// `None`: not a line of a [`Journal`].
    pub fn line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        if kind == "call" {
            let call = self.parse_call(rest)?;
            self.recorder.lock().calls.push(call);
            return Some(());
        }
        let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = number.parse().ok()?;
        match kind {
            "sent" => {
                self.ops.insert(number, parse_sent(rest)?);
                self.unanswered.insert(number);
            }
            "replied" => {
                let [sent, replied, reply] = words(rest)?;
                let op = self.ops.get_mut(&number)?;
                op.sent = sent.parse().ok()?;
                op.replied = replied.parse().ok()?;
                op.reply = parse_reply(reply)?;
                self.unanswered.remove(&number);
                self.recorder.op(op.clone());
            }
            "answer" => {
                let [port, term, sent, replied, reply] = words(rest)?;
                let question = self.ops.get(&number)?;
                self.recorder.op(Op {
                    server: parse_server(port, term)?,
                    request: Request::Answer(question.acquire()?.clone()),
                    sent: sent.parse().ok()?,
                    replied: replied.parse().ok()?,
                    reply: parse_reply(reply)?,
                    ..question.clone()
                });
            }
            "forgotten" => {
                let Op { owner, key, sent, .. } = self.ops.get(&number)?.clone();
                self.recorder
                    .lock()
                    .forgotten
                    .push(Forgotten { owner, key, sent });
            }
            _ => return None,
        }
        Some(())
    }

    fn parse_call(&self, text: &str) -> Option<Call> {
        let [port, term, sent, replied, made, answered] = words(text)?;
        Some(Call {
            process: self.process.clone(),
            server: parse_server(port, term)?,
            sent: sent.parse().ok()?,
            replied: replied.parse().ok()?,
            made: made == "1",
            answered: answered.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// The process has ended.
    pub fn end(mut self) {
        for number in std::mem::take(&mut self.unanswered) {
            if let Some(op) = self.ops.remove(&number) {
                self.recorder.op(Op { replied: now(), ..op });
            }
        }
    }
}

/// The first words, and the rest.
fn words<const N: usize>(text: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = text.splitn(N, ' ').collect();
    words.try_into().ok()
}

fn parse_server(port: &str, term: &str) -> Option<ServerTerm> {
    let (port, term) = (port.parse().ok()?, term.parse().ok()?);
    Some(ServerTerm { port, term })
}

/// A request whose reply is not known yet.
fn parse_sent(text: &str) -> Option<Op> {
    let [owner, key, port, term, sent, request] = words(text)?;
    Some(Op {
        owner: owner.to_owned(),
        key: key.to_owned(),
        server: parse_server(port, term)?,
        request: parse_request(request)?,
        sent: sent.parse().ok()?,
        replied: 0,
        reply: Reply::Disconnected,
    })
}

fn request_words(request: &Request) -> String {
    match request {
        Request::Acquire(Acquire {
            lease_ms,
            limit,
            wait: Wait::Queue { inbox, timeout_ms },
            reqid: Some(id),
        }) => {
            let limit = match limit {
                Limit::Of(limit) => *limit,
                Limit::Shared => 0,
            };
            format!("acquire {lease_ms} {limit} {inbox} {timeout_ms} {id}")
        }
        Request::Release {
            fence,
            all: false,
            reqid: Some(id),
        } => format!("release {} {id}", fence.unwrap_or(0)),
        Request::Extend {
            lease_ms,
            fence: Some(fence),
        } => format!("extend {lease_ms} {fence}"),
        other => unreachable!("waiters do not send {other}"),
    }
}

fn parse_request(text: &str) -> Option<Request> {
    let words: Vec<&str> = text.split(' ').collect();
    Some(match *words.as_slice() {
        ["acquire", lease_ms, limit, inbox, timeout_ms, id] => Request::Acquire(Acquire {
            lease_ms: lease_ms.parse().ok()?,
            limit: match limit.parse().ok()? {
                0 => Limit::Shared,
                limit => Limit::Of(limit),
            },
            wait: Wait::Queue {
                inbox: inbox.to_owned(),
                timeout_ms: timeout_ms.parse().ok()?,
            },
            reqid: Some(id.to_owned()),
        }),
        ["extend", lease_ms, fence] => Request::Extend {
            lease_ms: lease_ms.parse().ok()?,
            fence: Some(fence.parse().ok()?),
        },
        ["release", fence, id] => Request::Release {
            fence: Some(fence.parse().ok()?).filter(|fence| *fence > 0),
            all: false,
            reqid: Some(id.to_owned()),
        },
        _ => return None,
    })
}

fn reply_words(reply: &Reply) -> String {
    match reply {
        Reply::Granted {
            fence,
            holds,
            lease_ms,
            waited_ms,
        } => format!("granted {fence} {holds} {lease_ms} {waited_ms}"),
        Reply::Null => "null".into(),
        Reply::Queued(before) => format!("queued {before}"),
        Reply::Remaining(holds) => format!("remaining {holds}"),
        Reply::Lease(ms) => format!("lease {ms}"),
        Reply::Error(error) => format!("error {error}"),
        Reply::Disconnected => "disconnected".into(),
        Reply::TimedOut => "timed-out".into(),
        other => format!("unexpected {other}"),
    }
}

fn parse_reply(text: &str) -> Option<Reply> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let numbers: Option<Vec<u64>> = rest.split(' ').map(|word| word.parse().ok()).collect();
    Some(match (kind, numbers.as_deref()) {
        ("granted", Some(&[fence, holds, lease_ms, waited_ms])) => Reply::Granted {
            fence,
            holds,
            lease_ms,
            waited_ms,
        },
        ("queued", Some(&[before])) => Reply::Queued(before),
        ("remaining", Some(&[holds])) => Reply::Remaining(holds),
        ("lease", Some(&[ms])) => Reply::Lease(ms),
        ("null", _) => Reply::Null,
        ("error", _) => Reply::Error(rest.to_owned()),
        ("disconnected", _) => Reply::Disconnected,
        ("timed-out", _) => Reply::TimedOut,
        ("unexpected", _) => Reply::Unexpected(rest.to_owned()),
        _ => return None,
    })
}
