use std::time::Duration;

use redis::{Cmd, ToSingleRedisArg};

/// `DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms] [REQID id]`
///
/// ```
/// # use std::time::Duration;
/// use redis_dlock_client::Acquire;
///
/// let request = Acquire::new("orders:42", "alice", Duration::from_secs(30)).limit(3).request_id("7f3a");
/// ```
#[derive(Clone, Debug)]
pub struct Acquire(Cmd);

impl Acquire {
    /// A request for a lock that one owner at a time holds, with a lease of at least 1 ms. Parts of a
    /// millisecond are dropped.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg, lease: Duration) -> Self {
        let mut command = command("DLOCK.ACQUIRE");
        command.arg(key).arg(owner).arg(whole_ms(lease));
        Self(command)
    }

    /// Any number of owners may share the lock.
    pub fn shared(mut self) -> Self {
        self.0.arg("SHARED");
        self
    }

    /// At most `limit` owners may hold the lock at once.
    pub fn limit(mut self, limit: u32) -> Self {
        self.0.arg("LIMIT").arg(limit);
        self
    }

    /// Waits in the server's queue for at most `timeout`, which is rounded up to a millisecond.
    ///
    /// Every later command on the same connection waits too: use a connection of its own, with a longer
    /// response timeout.
    pub fn block(mut self, timeout: Duration) -> Self {
        let timeout_ms = whole_ms(timeout.saturating_add(Duration::from_nanos(999_999))).max(1);
        self.0.arg("BLOCK").arg(timeout_ms);
        self
    }

    /// Waits in the server's queue without limit. See [`Acquire::block`].
    pub fn block_without_limit(mut self) -> Self {
        self.0.arg("BLOCK").arg(0);
        self
    }

    /// The name of the hold, 1 to 64 bytes: the same request again does not count twice.
    pub fn request_id(mut self, id: impl ToSingleRedisArg) -> Self {
        self.0.arg("REQID").arg(id);
        self
    }
}

/// `DLOCK.RELEASE key owner [FENCE fence] [ALL | REQID id]`
#[derive(Clone, Debug)]
pub struct Release(Cmd);

impl Release {
    /// Gives back one hold.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg) -> Self {
        let mut command = command("DLOCK.RELEASE");
        command.arg(key).arg(owner);
        Self(command)
    }

    /// Only if the owner holds the lock under this fencing token.
    pub fn fence(mut self, fence: u64) -> Self {
        self.0.arg("FENCE").arg(fence);
        self
    }

    /// Gives back all holds of the owner.
    pub fn all(mut self) -> Self {
        self.0.arg("ALL");
        self
    }

    /// Gives back the hold of that name, or withdraws the waiting request of that name.
    pub fn request_id(mut self, id: impl ToSingleRedisArg) -> Self {
        self.0.arg("REQID").arg(id);
        self
    }
}

/// `DLOCK.EXTEND key owner lease-ms [FENCE fence]`
#[derive(Clone, Debug)]
pub struct Extend(Cmd);

impl Extend {
    /// The lease becomes the longer of what remains and `lease`, of which parts of a millisecond are dropped.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg, lease: Duration) -> Self {
        let mut command = command("DLOCK.EXTEND");
        command.arg(key).arg(owner).arg(whole_ms(lease));
        Self(command)
    }

    /// Only if the owner holds the lock under this fencing token.
    pub fn fence(mut self, fence: u64) -> Self {
        self.0.arg("FENCE").arg(fence);
        self
    }
}

/// `DLOCK.OWNER key`
pub(crate) fn owner_of(key: impl ToSingleRedisArg) -> Cmd {
    let mut command = command("DLOCK.OWNER");
    command.arg(key);
    command
}

/// `DLOCK.INFO key`
pub(crate) fn info_of(key: impl ToSingleRedisArg) -> Cmd {
    let mut command = command("DLOCK.INFO");
    command.arg(key);
    command
}

impl From<Acquire> for Cmd {
    fn from(request: Acquire) -> Self {
        request.0
    }
}

impl From<Release> for Cmd {
    fn from(request: Release) -> Self {
        request.0
    }
}

impl From<Extend> for Cmd {
    fn from(request: Extend) -> Self {
        request.0
    }
}

/// A command with room for its arguments, as long as they usually are: it need not grow with each of them.
fn command(name: &str) -> Cmd {
    const ARGUMENTS: usize = 10;
    const BYTES: usize = 192;
    let mut command = Cmd::with_capacity(ARGUMENTS, BYTES);
    command.arg(name);
    command
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
