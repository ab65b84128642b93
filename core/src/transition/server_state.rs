//! All lock state of a server except the locks themselves, which live in its keyspace.

use super::policy::Policy;
use super::replicas::{Offset, Replicas};
use crate::cluster::Cluster;
use crate::fence::{AdvanceReason, Fence, Fences, WallClock};
use crate::inbox::Inboxes;
use crate::lock::Lock;
use crate::names::Call;
use crate::time::{Grace, GraceKind, GraceLength, Inputs, Instant, LeaseClock, Role};
use crate::waiting::WaitTable;

/// The state that all locks of a server share. Transitions of its locks begin with [`ServerState::begin`], commands that
/// only read with [`ServerState::begin_read`].
#[derive(Clone, Debug)]
pub struct ServerState {
    /// The counter of fencing tokens.
    pub fences: Fences,
    /// The grace period.
    pub grace: Grace,
    /// The queues of all locks.
    pub wait_table: WaitTable,
    /// Where the answers to waiters go.
    pub inboxes: Inboxes,
    /// Whether replicas acknowledge changes.
    pub replicas: Replicas,
    /// Replicas and the append-only file need a new [`Checkpoint`].
    pub checkpoint_due: bool,
    /// The next one says when the grace period ends, at the latest.
    pub(crate) is_grace_end_due: bool,
    pub(crate) policy: Policy,
    /// What this node knows of its cluster; `None` outside of one.
    pub cluster: Option<Box<Cluster>>,
    /// A grace period or an advance of the fences is pending.
    pub(crate) is_term_pending: bool,
    /// The counter of fences before and after its last advance, until somebody takes note.
    advance: Option<(Fence, Fence)>,
}

/// What a primary knows besides its locks: DLOCK.SYNC and the auxiliary data of an RDB file carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The highest fence known.
    pub fence: Fence,
    /// What remains of the grace period.
    pub grace_left_ms: u64,
}

impl Default for ServerState {
    /// A server that starts: it knows nothing yet.
    fn default() -> Self {
        Self {
            fences: Fences::starting(),
            grace: Grace::starting(),
            wait_table: WaitTable::default(),
            inboxes: Inboxes::default(),
            replicas: Replicas::default(),
            checkpoint_due: false,
            is_grace_end_due: false,
            policy: Policy::default(),
            cluster: None,
            is_term_pending: true,
            advance: None,
        }
    }
}

impl ServerState {
    /// The settings are these from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.fences.set_quorum(policy.is_quorum);
        if self.lacks_replicas().is_some() {
            self.wait_table.schedule_db(None);
        }
        self.policy = policy;
    }

    /// Whether nobody is told of a hold, or of a longer lease, before replicas have it.
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.policy.min_sync_replicas > 0
    }

    /// How many replicas are required, if fewer acknowledge changes now.
    #[inline]
    pub(crate) fn lacks_replicas(&self) -> Option<usize> {
        let min = self.policy.min_sync_replicas;
        self.replicas.are_fewer_than(min).then_some(min)
    }

    /// The replicas that are online have acknowledged these offsets. Returns the one that as many as required have.
    pub(crate) fn observe_replicas(&mut self, acknowledged: Vec<Offset>) -> Option<Offset> {
        let lacked = self.lacks_replicas();
        let by_enough = self.replicas.observe(acknowledged, self.policy.min_sync_replicas);
        if lacked.is_some() && self.lacks_replicas().is_none() {
            self.wait_table.schedule_db(None);
        }
        by_enough
    }

    /// The settings that decisions depend on.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// By which leases are compared at `now`, where nothing is decided: values that are loaded or stored.
    pub fn clock(&self, now: Instant) -> LeaseClock {
        self.grace.clock(now)
    }

    /// Begins a command that only reads: by which leases are compared. A pending grace period starts first.
    pub fn begin_read(&mut self, role: Role, now: Instant) -> LeaseClock {
        self.start_grace_if_pending(role, now);
        self.grace.clock(now)
    }

    /// Starts a pending grace period.
    #[inline]
    pub fn start_grace_if_pending(&mut self, role: Role, now: Instant) {
        if self.grace.is_pending() && self.grace.start_if_pending(role, &self.policy.graces, now) {
            self.checkpoint_due = true;
        }
    }

    /// A grace setting was set, and had this value before. Where it is not longer now, a running grace period of that kind
    /// is shortened. Returns what was left of it, in milliseconds, if it is shorter now. Its end may be one at which
    /// something is due.
    pub fn shorten_grace(&mut self, kind: GraceKind, before: GraceLength, now: Instant) -> Option<u64> {
        let length = self.policy.graces.of(kind);
        let left_ms = self.grace.left_ms(now);
        if self.grace.length_ms(length) <= self.grace.length_ms(before) {
            self.grace.shorten(kind, length, now);
        }
        let is_shorter = self.grace.left_ms(now) < left_ms;
        if is_shorter {
            self.grace_ended();
            self.wait_table.schedule_db(None);
        }
        is_shorter.then_some(left_ms)
    }

    /// The grace period is over, or ends sooner: so it does on replicas and after a restart.
    pub fn grace_ended(&mut self) {
        self.checkpoint_due = true;
        self.is_grace_end_due = true;
    }

    /// Starts what is pending after a start or a promotion: the grace period, and the advance of the fence counter, in
    /// the first tick or before a grant that comes sooner.
    pub fn tick(&mut self, inputs: &Inputs<'_>) {
        self.start_grace_if_pending(inputs.role, inputs.now);
        let is_grace = self.grace.end() > inputs.now;
        if inputs.role == Role::Primary && self.fences.is_advance_due(is_grace) {
            self.advance_fences(inputs);
        }
        self.is_term_pending = self.grace.is_pending() || self.fences.is_advance_pending();
    }

    fn advance_fences(&mut self, inputs: &Inputs<'_>) {
        let from = self.fences.known();
        let (wall_clock, random) = (inputs.environment.wall_clock(), inputs.environment.random());
        self.fences.advance(wall_clock, random);
        self.checkpoint_due = true;
        // The first start leaves it at 0: the clock is only a floor for the first grant.
        let to = self.fences.known();
        self.advance = (to > from).then_some((from, to));
    }

    /// Before a grant in a cluster slot: its last fence may be that of another node.
    pub(crate) fn claim_slot(&mut self, slot: usize, inputs: &Inputs<'_>) {
        let Cluster { fences, slots } = &mut **self.cluster.get_or_insert_default();
        let clock = || inputs.environment.wall_clock();
        if fences.claim(slot, &slots.settled, &mut self.fences, clock, inputs.now) {
            self.checkpoint_due = true;
        }
    }

    /// What this node knows of its cluster, with its fences.
    pub fn cluster(&mut self) -> (&mut Cluster, &Fences) {
        (self.cluster.get_or_insert_default(), &self.fences)
    }

    /// The last advance of the fence counter after a start or a promotion, from and to, once.
    pub fn take_advance(&mut self) -> Option<(Fence, Fence)> {
        self.advance.take()
    }

    /// The largest MINFENCE that is accepted: what other servers of the quorum may have issued, if their clocks are closer
    /// to this one than its startup grace period. `None`: this is no server of a quorum.
    pub(crate) fn max_min_fence(&self, wall_clock: impl FnOnce() -> WallClock) -> Option<Fence> {
        let ahead_ms = self.grace.length_ms(self.policy.graces.startup);
        self.policy
            .is_quorum
            .then(|| self.fences.max_min_fence(wall_clock(), ahead_ms))
    }

    /// This server is the primary now.
    pub fn promote(&mut self) {
        self.fences.request_advance(AdvanceReason::Promotion);
        self.grace.promoted();
        self.is_term_pending = true;
    }

    /// This server is a replica now. Returns the calls of readers that are over, for [`crate::Inboxes::reply`].
    pub fn demote(&mut self) -> Vec<Call> {
        self.grace.demoted();
        self.replicas = Replicas::default();
        self.wait_table.schedule_db(None);
        self.inboxes.end_all()
    }

    /// What replicas and the append-only file have to know at `now`.
    pub fn checkpoint(&self, now: Instant) -> Checkpoint {
        Checkpoint {
            fence: self.fences.known(),
            grace_left_ms: self.grace.left_ms(now),
        }
    }

    /// The checkpoint that has to be sent now, if something has changed, or during a grace period, `periodic`ally.
    pub fn due_checkpoint(&mut self, periodic: bool, now: Instant) -> Option<Checkpoint> {
        let checkpoint = self.checkpoint(now);
        let is_due = self.checkpoint_due || periodic && checkpoint.grace_left_ms > 0;
        if is_due {
            self.checkpoint_due = false;
        }
        (is_due && (self.is_grace_end_due || checkpoint != Checkpoint::default())).then_some(checkpoint)
    }

    /// Whether the checkpoint that is sent also says when the grace period ends, at the latest: once.
    pub fn take_grace_end(&mut self) -> bool {
        std::mem::take(&mut self.is_grace_end_due)
    }

    /// Applies a checkpoint from the primary or the append-only file.
    pub fn apply_checkpoint(&mut self, checkpoint: Checkpoint, now: Instant) {
        self.fences.observe(checkpoint.fence);
        self.grace.observe(checkpoint.grace_left_ms, now);
    }

    /// Restores a checkpoint that was stored together with the locks that are loaded now.
    pub fn restore_checkpoint(&mut self, checkpoint: Checkpoint, now: Instant) {
        self.fences.observe(checkpoint.fence);
        self.grace.restore(checkpoint.grace_left_ms, now);
    }

    /// Takes note of the fences and leases of a lock that was granted elsewhere or earlier.
    pub fn observe_lock(&mut self, lock: &Lock, now: Instant) {
        let clock = self.clock(now);
        for holder in lock.holders() {
            self.fences.observe(holder.fence());
            self.grace.observe_lease(holder.lease_ms(clock));
        }
    }
}
