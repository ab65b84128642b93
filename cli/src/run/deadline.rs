//! When `--wait` or `--try` gives up. The time counts from the start of the process, whatever it waits for.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::args::RunArgs;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::server::{LockServer, Target};

/// How long `--try` waits for servers.
const TRY: Duration = Duration::from_secs(2);
/// How long to wait until servers have dropped a cancelled request.
const CANCEL: Duration = Duration::from_secs(2);
/// What is left for the last words when the time is up: a grant that is under way would last for its lease.
const MOMENT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
pub struct Deadline {
    limit: Duration,
    /// None: there is no limit.
    at: Option<Instant>,
    option: &'static str,
}

impl Deadline {
    /// Counts from now.
    pub fn new(args: &RunArgs) -> Self {
        let (limit, option) = match args.wait {
            _ if args.no_wait => (TRY, "--try"),
            limit => (limit.unwrap_or(Duration::MAX), "--wait"),
        };
        Self {
            limit,
            at: Instant::now().checked_add(limit),
            option,
        }
    }

    /// The time that is left.
    pub fn left(self) -> Duration {
        self.at
            .map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// The result of a future, if it completes in time, or a moment later because its own timeout says more.
    pub async fn within<T>(self, future: impl Future<Output = T>) -> Option<T> {
        timeout(self.left().saturating_add(MOMENT / 2), future).await.ok()
    }

    /// Connects to the servers. An attempt may block for longer, for instance while it resolves a name: then it is left to
    /// its thread.
    pub fn connect(self, target: Target) -> Result<LockServer, Failure> {
        let names = target.server_names().join(", ");
        let (sender, connected) = mpsc::channel();
        thread::Builder::new()
            .spawn(move || sender.send(target.lock_server()))
            .map_err(|error| Failure::os("start a thread", &error))?;
        connected.recv_timeout(self.left()).unwrap_or_else(|_| {
            let what = format!("{names}: no reply");
            let remedy = "is the server running, and not blocked or paused?";
            Err(self.failure(Code::Unavailable, &what, remedy))
        })
    }

    /// Waits until no server knows the request any more.
    pub async fn cancel(self, cancelled: impl Future<Output = ()>) {
        // After a timeout, the request ends with its inbox, or the grant with its lease.
        let _ = timeout(self.left().clamp(MOMENT, CANCEL), cancelled).await;
    }

    pub fn failure(self, code: Code, what: &str, remedy: &str) -> Failure {
        let (limit, option) = (duration::format(self.limit), self.option);
        Failure::new(code, format!("{what} within {limit} ({option}): {remedy}"))
    }
}
