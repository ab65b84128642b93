//! Tests by example: requests are the text of commands, `ACQUIRE key owner lease-ms ...`.

use crate::engine::{Cause, Error, acquire, decide};
use crate::lock::{Holder, Lock};
use crate::memory::Memory;
use crate::names::{Call, LockName};
use crate::testing::{Answer, Client, Reply, Request, Server};
use crate::wire::{Acquired, Granted};

impl Memory {
    /// Sends a request. Returns its reply as text, or the call for which its client is blocked. `granted 60000 0 1` has the
    /// lease, what the request waited, and the holds.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, Call> {
        let [name, key, args] = command.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{command}")
        };
        let (text, key, flags) = (format!("{name} {args}"), key.as_bytes(), self.flags);
        let reply = match Request::parse(&text) {
            Request::Acquire(request) => {
                let acquired = acquire(self, key, flags, b"", &request);
                acquired.map(|acquired| match acquired {
                    Acquired::Granted(granted) => shown(&granted),
                    Acquired::NotGranted => "null".to_owned(),
                    Acquired::Queued(ahead) => format!("queued {ahead}"),
                })
            }
            Request::Release(request) => {
                let left = decide(self, key, flags, Cause::Client, |it| it.release(&request));
                left.map(|left| format!("left {left}"))
            }
            Request::Extend(request) => {
                let lease_ms = decide(self, key, flags, Cause::Client, |it| it.extend(&request));
                lease_ms.map(|lease_ms| format!("lease {lease_ms}"))
            }
        };
        let reply = reply.unwrap_or_else(|error: Error| code(&error.to_string()));
        self.take_parked().map_or(Ok(reply), Err)
    }

    /// The first holder.
    pub(crate) fn owner(&self, key: &str) -> Option<String> {
        let lock = self.lock(&LockName::new(0, key.as_bytes()))?;
        let owner = lock.holders().first()?.owner();
        Some(String::from_utf8_lossy(owner).into_owned())
    }
}

pub(crate) fn shown(granted: &Granted) -> String {
    format!(
        "granted {} {} {}",
        granted.lease_ms, granted.waited_ms, granted.holds
    )
}

pub(crate) fn code(error: &str) -> String {
    error.split(' ').next().unwrap_or_default().to_owned()
}

impl Server {
    /// Sends a request that is replied to at once. Before one that blocks, all due waiters are processed.
    #[track_caller]
    pub(crate) fn call(&mut self, command: &str) -> Reply {
        let (_, reply) = self.send_command(command);
        reply.unwrap_or_else(|| panic!("{command} waits"))
    }

    #[track_caller]
    pub(crate) fn granted(&mut self, command: &str) -> Granted {
        match self.call(command) {
            Ok(Answer::Granted(granted)) => granted,
            reply => panic!("{reply:?} to {command}"),
        }
    }

    /// Sends a request that blocks, and is queued.
    #[track_caller]
    pub(crate) fn waits(&mut self, command: &str) -> Client {
        match self.send_command(command) {
            (client, None) => client,
            (_, reply) => panic!("{reply:?} to {command}"),
        }
    }

    fn send_command(&mut self, command: &str) -> (Client, Option<Reply>) {
        let [name, key, args] = command.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{command}")
        };
        let text = format!("{name} {args}");
        let request = Request::parse(&text);
        if matches!(request, Request::Acquire(acquire) if acquire.wait.is_some()) {
            self.process_due();
        }
        self.last_client += 1;
        let lock = self.index(key);
        (self.last_client, self.ask(self.last_client, lock, &request))
    }

    /// Whether a waiter has been granted the lock.
    pub(crate) fn has_been_granted(&self, client: Client) -> bool {
        let is_grant = |reply: &Reply| matches!(reply, Ok(Answer::Granted(_)));
        self.replies
            .iter()
            .any(|(to, reply)| *to == client && is_grant(reply))
    }

    pub(crate) fn lock(&self, key: &str) -> &Lock {
        self.lock_at(self.index(key))
    }

    /// The holders, expired ones included.
    pub(crate) fn owners(&self, key: &str) -> Vec<String> {
        let name = |holder: &Holder| String::from_utf8_lossy(holder.owner()).into_owned();
        self.lock(key).holders().iter().map(name).collect()
    }

    pub(crate) fn index(&self, key: &str) -> usize {
        let mut names = self.names.iter().map(|name| &*name.key);
        names
            .position(|name| name == key.as_bytes())
            .expect("a lock of this server")
    }
}
