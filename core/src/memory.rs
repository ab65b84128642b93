//! A host of the engine in memory: keys, a stream of replication, blocked clients, and clocks that the caller sets.
//!
//! It does what a server does between the calls of the module, and nothing more: the caller runs commands, lets timers
//! fire, and asks for the replies to calls that were woken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::cluster::nodes::LocalSlots;
use crate::engine::{
    EngineState, Error, Flags, Host, Level, LockValue, OpenKey, Process, Stored, WriteCheck, apply,
    checkpoint, events, held_back, keyspace, scheduler,
};
use crate::fence::WallClock;
use crate::lock::{Lock, decode_lock, encode_lock};
use crate::names::{Call, LockName};
use crate::time::{Environment, Inputs, Instant, Role};
use crate::transition::{Checkpoint, Offset};
use crate::wire::Event;

/// The databases of a server.
pub const DATABASES: i32 = 16;

/// A server in memory.
#[derive(Clone, Default)]
pub struct Memory {
    state: EngineState,
    keys: BTreeMap<LockName, Value>,
    db: i32,
    /// What the clocks show.
    pub clocks: Clocks,
    /// What the server says of itself and of the running command.
    pub flags: Flags,
    /// Whether clients are paused.
    pub is_paused: bool,
    /// Why the server would accept no write of a client, if so.
    pub refusal: Option<WriteCheck>,
    /// What replicas and the append-only file get.
    pub stream: Vec<Sent>,
    /// The keyspace events that were published.
    pub events: Vec<(Event, LockName)>,
    /// The lines of the log.
    pub log: Vec<(Level, String)>,
    /// What the engine had this host do, in order.
    pub calls: Vec<HostCall>,
    /// Whether the server takes no new value.
    pub refuses_values: bool,
    /// How many commands replicas were sent.
    pub offset: Offset,
    /// How many of them the replicas that are online have acknowledged.
    pub replicas: Vec<Offset>,
    /// They acknowledge all that they have when they are asked. Otherwise the caller sets [`Memory::replicas`].
    pub acknowledges_at_once: bool,
    /// The slots of this node, if the server says.
    pub slots: Option<LocalSlots>,
    /// What the other nodes of the cluster get.
    pub broadcasts: Vec<Vec<u8>>,
    blocked: BTreeSet<Call>,
    parked: Option<Call>,
    woken: Vec<Call>,
    wait_timer: Option<Instant>,
    slice_timer: Option<Instant>,
    sync_timer: Option<Instant>,
}

/// A call of the host that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// A key was opened for a decision.
    Open,
    /// A new lock was stored.
    Set,
    /// A lock was deleted.
    Delete,
    /// A client was blocked.
    Block,
    /// Replicas and the append-only file got something.
    Replicate,
    /// A client gets the reply to its call.
    Wake,
    /// A keyspace event was published.
    Notify,
}

/// What is under a key.
#[derive(Clone)]
pub enum Value {
    /// A lock.
    Lock(Box<LockValue>),
    /// Something else.
    Other(Vec<u8>),
}

/// What the clocks of a server show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The monotonic clock.
    pub now: Instant,
    /// The wall clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The next random bits.
    pub random: u64,
}

/// A command that replicas and the append-only file get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A change of this lock.
    Change(LockName, Vec<u8>),
    /// The running command.
    Verbatim,
    /// A checkpoint, and whether it ends the grace period.
    Checkpoint(Checkpoint, bool),
}

/// What a snapshot holds of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    locks: Vec<(LockName, Vec<u8>)>,
    checkpoint: Checkpoint,
}

impl Memory {
    /// The state of the engine.
    pub fn engine(&self) -> &EngineState {
        &self.state
    }

    /// The value under a key.
    pub fn value(&self, name: &LockName) -> Option<&Value> {
        self.keys.get(name)
    }

    /// The lock under a key.
    pub fn lock(&self, name: &LockName) -> Option<&Lock> {
        match self.keys.get(name)? {
            Value::Lock(value) => Some(&value.lock),
            Value::Other(_) => None,
        }
    }

    /// Puts a value that is no lock under a key, in place of what is there.
    pub fn put(&mut self, name: LockName, value: Vec<u8>) {
        self.remove(&name);
        self.keys.insert(name, Value::Other(value));
    }

    /// Puts a lock under a key, in place of what is there, as RENAME and RESTORE do. The engine takes note of it.
    pub fn put_lock(&mut self, name: LockName, lock: Lock) {
        self.remove(&name);
        let value = LockValue::new(lock);
        value.adopt(&mut self.state, name.as_ref(), self.clocks.now);
        self.keys.insert(name, Value::Lock(Box::new(value)));
    }

    /// Removes a key, as DEL does. Returns whether it was there.
    pub fn remove(&mut self, name: &LockName) -> bool {
        let former = self.keys.remove(name);
        if let Some(Value::Lock(value)) = &former {
            keyspace::unlinked(value, self, name.as_ref());
        }
        former.is_some()
    }

    /// Swaps two databases, as SWAPDB does.
    pub fn swap_dbs(&mut self, first: i32, second: i32) {
        let swapped = |db| match db {
            db if db == first => second,
            db if db == second => first,
            db => db,
        };
        let keys = std::mem::take(&mut self.keys).into_iter();
        let keys = keys.map(|(name, value)| (LockName::new(swapped(name.db), &name.key), value));
        self.keys = keys.collect();
        events::swapped(self, [first, second]);
    }

    /// Does what is due: lets timers fire, and runs the cron where locks expire.
    pub fn run_due(&mut self) {
        if self.wait_timer.is_some_and(|at| at <= self.clocks.now) {
            self.wait_timer = None;
            scheduler::on_wait_timer(self);
        }
        if self.slice_timer.is_some_and(|at| at <= self.clocks.now) {
            self.slice_timer = None;
            scheduler::on_slice_timer(self);
        }
        if self.sync_timer.is_some_and(|at| at <= self.clocks.now) {
            self.sync_timer = None;
            held_back::on_sync_timer(self);
        }
        if self.removes_expired() && self.state.expiry.is_due(self.clocks.now) {
            scheduler::run_jobs(self);
        }
    }

    fn removes_expired(&self) -> bool {
        self.flags.is_active_primary() && !self.is_paused
    }

    /// When [`Memory::run_due`] has something to do.
    pub fn next_due(&self) -> Option<Instant> {
        let timers = self.wait_timer.into_iter().chain(self.slice_timer);
        let timers = timers.chain(self.sync_timer);
        let expiry = self.state.expiry.next_due();
        timers.chain(expiry.filter(|_| self.removes_expired())).min()
    }

    /// The call for which the client of the last command is blocked, once.
    pub fn take_parked(&mut self) -> Option<Call> {
        self.parked.take()
    }

    /// The calls that get their replies now: see [`crate::engine::answering::reply`].
    pub fn take_woken(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.woken)
    }

    /// The client of a call leaves before its reply. True if it was blocked.
    pub fn forget_blocked(&mut self, call: Call) -> bool {
        self.blocked.remove(&call)
    }

    /// Forgets what was replicated, published and logged.
    pub fn forget_output(&mut self) {
        self.stream.clear();
        self.events.clear();
        self.log.clear();
        self.calls.clear();
    }

    /// How many clients are blocked.
    pub fn blocked_clients(&self) -> usize {
        self.blocked.len()
    }

    /// Makes the queue of a lock due.
    pub fn make_due(&mut self, name: &LockName) {
        let table = &mut self.state.server.wait_table;
        table.schedule(name.as_ref(), Instant::DISTANT_PAST);
        self.set_wait_timer(0);
    }

    /// Takes a snapshot.
    pub fn save(&self) -> Snapshot {
        let clock = self.state.server.clock(self.clocks.now);
        let locks = self.keys.iter().filter_map(|(name, value)| match value {
            Value::Lock(value) => Some((name.clone(), encode_lock(&value.lock, clock))),
            Value::Other(_) => None,
        });
        Snapshot {
            locks: locks.collect(),
            checkpoint: self.state.server.checkpoint(self.clocks.now),
        }
    }

    /// Loads a snapshot into a server that has just started, or that follows another one from now on.
    pub fn load(&mut self, snapshot: &Snapshot) -> Result<(), crate::wire::Error> {
        self.flags.is_loading = true;
        events::loading_began(self);
        self.restore(snapshot)?;
        self.flags.is_loading = false;
        events::loading_ended(self);
        Ok(())
    }

    /// Takes the locks and the checkpoint of a snapshot.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) -> Result<(), crate::wire::Error> {
        let now = self.clocks.now;
        self.state.server.restore_checkpoint(snapshot.checkpoint, now);
        for (name, bytes) in &snapshot.locks {
            let value = LockValue::new(decode_lock(bytes, now)?);
            value.adopt(&mut self.state, name.as_ref(), now);
            self.keys.insert(name.clone(), Value::Lock(Box::new(value)));
        }
        Ok(())
    }

    /// Carries out a command of the primary, or of the append-only file.
    pub fn receive(&mut self, sent: &Sent) -> Result<(), Error> {
        self.flags.must_obey = true;
        let flags = self.flags;
        let outcome = match sent {
            Sent::Change(name, change) => {
                self.db = name.db;
                apply(self, &name.key, flags, change)
            }
            Sent::Checkpoint(received, ends_grace) => checkpoint::apply(self, flags, *received, *ends_grace),
            Sent::Verbatim => Ok(()),
        };
        self.flags.must_obey = false;
        outcome
    }

    fn send(&mut self, sent: Sent) {
        self.calls.push(HostCall::Replicate);
        self.offset = self.offset.saturating_add(1);
        self.stream.push(sent);
    }

    fn name_of(&self, key: &[u8]) -> LockName {
        LockName::new(self.db, key)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = self.keys.iter().filter_map(|(name, value)| match value {
            Value::Lock(value) => Some((name, &value.lock)),
            Value::Other(_) => None,
        });
        f.debug_struct("Memory")
            .field("locks", &locks.collect::<Vec<_>>())
            .field("server", &self.state.server)
            .field("clocks", &self.clocks)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl Clocks {
    /// The inputs of a decision at this time, on a primary with replicas, outside of a cluster.
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs {
            now: self.now,
            role: Role::Primary,
            slot: None,
            must_encode: true,
            environment: self,
        }
    }
}

impl Environment for Clocks {
    fn wall_clock(&self) -> WallClock {
        WallClock::from_unix_ms(self.unix_ms)
    }

    fn random(&self) -> u64 {
        self.random
    }
}

impl Process for Memory {
    type Environment = Clocks;

    fn state(&mut self) -> &mut EngineState {
        &mut self.state
    }

    fn now(&self) -> Instant {
        self.clocks.now
    }

    fn environment(&self) -> Clocks {
        self.clocks
    }

    fn set_wait_timer(&mut self, period_ms: u64) {
        self.wait_timer = Some(self.clocks.now.after_ms(period_ms));
    }

    fn set_slice_timer(&mut self, period_ms: u64) {
        self.slice_timer = Some(self.clocks.now.after_ms(period_ms));
    }

    fn set_sync_timer(&mut self) {
        self.sync_timer = Some(self.clocks.now);
    }

    fn wake(&mut self, call: Call) {
        if self.blocked.remove(&call) {
            self.calls.push(HostCall::Wake);
            self.woken.push(call);
        }
    }

    fn log(&mut self, level: Level, text: &str) {
        self.log.push((level, text.to_owned()));
    }
}

impl Host for Memory {
    type Name<'n> = &'n [u8];
    type OwnName = Box<[u8]>;
    type Key<'h> = MemoryKey<'h>;

    /// A host in memory always has a log.
    fn flags(&self) -> Flags {
        Flags {
            has_aof: true,
            ..self.flags
        }
    }

    fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn db(&self) -> i32 {
        self.db
    }

    fn select_db(&mut self, db: i32) -> bool {
        let exists = (0..DATABASES).contains(&db);
        if exists {
            self.db = db;
        }
        exists
    }

    fn bytes(name: Self::Name<'_>) -> &[u8] {
        name
    }

    fn make_name(key: &[u8]) -> Box<[u8]> {
        key.into()
    }

    fn name(own: &Box<[u8]>) -> &[u8] {
        own
    }

    fn open<'h>(&'h mut self, name: &[u8]) -> Option<MemoryKey<'h>> {
        self.calls.push(HostCall::Open);
        let name = self.name_of(name);
        Some(MemoryKey { host: self, name })
    }

    fn read<R>(&mut self, name: &[u8], read: impl FnOnce(Stored<&LockValue>, &mut EngineState) -> R) -> R {
        let stored = match self.keys.get(&self.name_of(name)) {
            None => Stored::Nothing,
            Some(Value::Lock(value)) => Stored::Lock(&**value),
            Some(Value::Other(_)) => Stored::OtherType,
        };
        read(stored, &mut self.state)
    }

    fn check_write(&mut self, _: &[u8], _: Flags) -> WriteCheck {
        self.refusal.clone().unwrap_or(WriteCheck::Accepted)
    }

    fn is_out_of_memory(&mut self) -> bool {
        false
    }

    fn replicate(&mut self, name: &[u8], change: &[u8]) {
        let change = Sent::Change(self.name_of(name), change.to_vec());
        self.send(change);
    }

    fn replicate_verbatim(&mut self) {
        self.send(Sent::Verbatim);
    }

    fn replicate_checkpoint(&mut self, checkpoint: Checkpoint, ends_grace: bool, _: bool) {
        self.send(Sent::Checkpoint(checkpoint, ends_grace));
    }

    fn signal_modified(&mut self, _: &[u8]) {}

    fn notify(&mut self, event: Event, name: &[u8]) {
        self.calls.push(HostCall::Notify);
        self.events.push((event, self.name_of(name)));
    }

    fn broadcast(&mut self, message: &[u8]) {
        self.broadcasts.push(message.to_vec());
    }

    fn block(&mut self, call: Call) {
        self.calls.push(HostCall::Block);
        self.blocked.insert(call);
        self.parked = Some(call);
    }

    fn replica_offsets(&mut self) -> Option<(Offset, Vec<Offset>)> {
        Some((self.offset, self.replicas.clone()))
    }

    fn request_acknowledgements(&mut self) {
        if self.acknowledges_at_once {
            self.replicas.fill(self.offset);
            held_back::look_soon(self);
        }
    }

    fn has_no_replicas(&mut self) -> bool {
        false
    }

    fn local_slots(&mut self) -> Option<LocalSlots> {
        self.slots.clone()
    }

    fn is_cluster_down(&mut self) -> Option<bool> {
        None
    }
}

/// An open key.
pub struct MemoryKey<'h> {
    host: &'h mut Memory,
    name: LockName,
}

impl<'h> OpenKey<'h, Memory> for MemoryKey<'h> {
    fn value(&mut self) -> (Stored<&mut LockValue>, &mut EngineState) {
        let stored = match self.host.keys.get_mut(&self.name) {
            None => Stored::Nothing,
            Some(Value::Lock(value)) => Stored::Lock(&mut **value),
            Some(Value::Other(_)) => Stored::OtherType,
        };
        (stored, &mut self.host.state)
    }

    fn set(&mut self, value: Box<LockValue>) -> bool {
        if self.host.refuses_values {
            return false;
        }
        self.host.calls.push(HostCall::Set);
        self.host.keys.insert(self.name.clone(), Value::Lock(value));
        true
    }

    fn delete(&mut self) {
        self.host.calls.push(HostCall::Delete);
        self.host.remove(&self.name);
    }

    fn persist(&mut self) {}

    fn close(self) -> &'h mut Memory {
        self.host
    }
}
