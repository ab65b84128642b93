//! What the engine needs of the server that it runs in.
//!
//! A method takes `&mut self` if the server may call the module back before it returns, or writes to the stream of
//! replication. With `&self` it does neither. [`Process::state`] borrows the host for as long as the state is in use. So
//! code in which a callback could find the state in use does not compile.

use super::lock_value::LockValue;
use super::state::EngineState;
use crate::cluster::nodes::LocalSlots;
use crate::names::Call;
use crate::time::{Environment, Instant, Role};
use crate::transition::{Checkpoint, Offset};
use crate::wire::Event;

/// What every callback of the server can use, also one without a client: it changes no key and replicates nothing.
pub trait Process {
    /// Wall clock and randomness.
    type Environment: Environment;

    /// The state of the engine: one for the process.
    fn state(&mut self) -> &mut EngineState;
    /// The monotonic clock, by which leases and timeouts go.
    fn now(&self) -> Instant;
    /// See there.
    fn environment(&self) -> Self::Environment;
    /// Has [`crate::engine::scheduler::on_wait_timer`] called after this time, in place of an earlier setting.
    fn set_wait_timer(&mut self, period_ms: u64);
    /// Has [`crate::engine::scheduler::on_slice_timer`] called after this time.
    fn set_slice_timer(&mut self, period_ms: u64);
    /// Has [`crate::engine::held_back::on_sync_timer`] called at the end of this pass of the server's loop.
    fn set_sync_timer(&mut self);
    /// Has the server call for the reply to this call, soon, if its client is still blocked.
    fn wake(&mut self, call: Call);
    /// Writes to the server's log.
    fn log(&mut self, level: Level, text: &str);
}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What an operator may want to know.
    Notice,
    /// What an operator should do something about.
    Warning,
}

/// A server that runs a command or a timer of the module: its keys, its stream of replication, its clients.
pub trait Host: Process + Sized {
    /// The name of a key, as the server has it.
    type Name<'n>: Copy;
    /// A name that the engine has made.
    type OwnName;
    /// A key that is open for writing.
    type Key<'h>: OpenKey<'h, Self>
    where
        Self: 'h;

    /// The flags of this moment.
    fn flags(&self) -> Flags;
    /// Whether nothing may be written now: clients are paused, for a failover for instance.
    fn is_paused(&self) -> bool;
    /// The selected database.
    fn db(&self) -> i32;
    /// Selects a database; false if there is none of this number.
    #[must_use]
    fn select_db(&mut self, db: i32) -> bool;

    /// The bytes of a name.
    fn bytes(name: Self::Name<'_>) -> &[u8];
    /// A name of these bytes.
    fn make_name(key: &[u8]) -> Self::OwnName;
    /// Borrows a name.
    fn name(own: &Self::OwnName) -> Self::Name<'_>;
    /// Opens a key of the selected database for writing. The server deletes it if its TTL has passed. `None`: it is writing
    /// the value to a snapshot at the moment, on another thread.
    fn open<'h>(&'h mut self, name: Self::Name<'_>) -> Option<Self::Key<'h>>;
    /// Reads what is under a key of the selected database.
    fn read<R>(
        &mut self,
        name: Self::Name<'_>,
        read: impl FnOnce(Stored<&LockValue>, &mut EngineState) -> R,
    ) -> R;
    /// Whether the server would accept a write of this key by a client now. Only for a primary that is not paused.
    fn check_write(&mut self, name: Self::Name<'_>, flags: Flags) -> WriteCheck;

    /// Whether the server would refuse a command that may grow memory.
    fn is_out_of_memory(&mut self) -> bool;

    /// Sends a change of this lock to replicas and the append-only file.
    fn replicate(&mut self, name: Self::Name<'_>, change: &[u8]);
    /// Sends the running command, and counts a change since the last snapshot.
    fn replicate_verbatim(&mut self);
    /// Sends a checkpoint to replicas, and to the append-only file if `is_logged`. `ends_grace`: its grace period ends
    /// after that time, also where another one said later.
    fn replicate_checkpoint(&mut self, checkpoint: Checkpoint, ends_grace: bool, is_logged: bool);
    /// Invalidates the key for clients that watch or track it.
    fn signal_modified(&mut self, name: Self::Name<'_>);
    /// Publishes a keyspace event. Other modules may run commands when they get it.
    fn notify(&mut self, event: Event, name: Self::Name<'_>);
    /// Sends a message to all nodes of the cluster that are connected.
    fn broadcast(&mut self, message: &[u8]);
    /// Blocks the client of the running command until this call gets its reply.
    fn block(&mut self, call: Call);

    /// The offset of the stream of replication, and those that the replicas that are online have acknowledged.
    fn replica_offsets(&mut self) -> Option<(Offset, Vec<Offset>)>;
    /// Asks replicas to acknowledge what they have, not by the append-only file. This must be all that a callback replicates:
    /// the server makes one transaction of several, and replicas would acknowledge an offset within it.
    fn request_acknowledgements(&mut self);
    /// Whether there are neither replicas nor a backlog from which one could continue.
    fn has_no_replicas(&mut self) -> bool;
    /// The cluster slots of this node, if the server says.
    fn local_slots(&mut self) -> Option<LocalSlots>;
    /// Whether the cluster serves no keys, if the server says.
    fn is_cluster_down(&mut self) -> Option<bool>;
}

/// The state of a server, and of the client of the running command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The server follows another one.
    pub is_replica: bool,
    /// It loads its files, or the snapshot of its primary.
    pub is_loading: bool,
    /// It is a node of a cluster.
    pub is_cluster: bool,
    /// What is replicated goes into an append-only file.
    pub has_aof: bool,
    /// The command comes from the primary or from the append-only file: it is executed as it is.
    pub must_obey: bool,
    /// The command comes from a node that migrates slots to this one, or from a client that poses as one.
    pub is_slot_import: bool,
}

impl Flags {
    /// The server follows no other one.
    #[inline]
    pub fn is_primary(self) -> bool {
        !self.is_replica
    }

    /// A primary that is not loading: here leases expire by the clock.
    #[inline]
    pub fn is_active_primary(self) -> bool {
        self.is_primary() && !self.is_loading
    }

    /// The role of the server.
    #[inline]
    pub fn role(self) -> Role {
        if self.is_loading {
            Role::Loading
        } else if self.is_primary() {
            Role::Primary
        } else {
            Role::Replica
        }
    }
}

/// An open key. It borrows the host, so that there is one at a time, and nothing can delete the value while a reference
/// to it is in use.
pub trait OpenKey<'h, H> {
    /// What is under the key, together with the state.
    fn value(&mut self) -> (Stored<&mut LockValue>, &mut EngineState);
    /// Stores a lock in place of nothing. False if the server does not take it.
    #[must_use]
    fn set(&mut self, value: Box<LockValue>) -> bool;
    /// Deletes what is under the key.
    fn delete(&mut self);
    /// Removes a TTL.
    fn persist(&mut self);
    /// Closes the key.
    fn close(self) -> &'h mut H;
}

/// What is under a key.
pub enum Stored<V> {
    /// No key.
    Nothing,
    /// A lock.
    Lock(V),
    /// Something else.
    OtherType,
}

/// Whether the server would accept a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteCheck {
    /// It would.
    Accepted,
    /// Not of this key: the lock is being saved.
    Later,
    /// Not of any key: clients are paused, too few replicas, the disk is full ...
    Refused,
    /// The key is served elsewhere: the error for the waiters.
    Elsewhere(String),
    /// It may be served here again: the error for the waiters, who need not wait for that.
    Unavailable(String),
}
