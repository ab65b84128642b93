//! What a guard on a majority of servers shares with the renewal thread: the holds on the servers.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::servers::Servers;
use super::standing::{Member, Standing};
use crate::clock::BootInstant;
use crate::error::LostReason;
use crate::events::EventKind;
use crate::guard::Guard;
use crate::identity::RequestIdentity;
use crate::options::Options;
use crate::sync::lock;

/// A hold on a majority of servers. Each of the holds that it consists of is renewed on its own.
pub(super) struct Held {
    pub servers: Arc<Servers>,
    pub identity: RequestIdentity,
    /// 0: of a shared lock.
    pub fence: u64,
    renews: bool,
    over_at: Option<BootInstant>,
    standing: Mutex<Standing<Arc<Guard>>>,
    /// Cancelled when the lock is lost or given up.
    token: CancellationToken,
}

impl Held {
    pub fn new(
        servers: &Arc<Servers>,
        identity: RequestIdentity,
        fence: u64,
        options: &Options,
        members: Vec<Guard>,
    ) -> Arc<Self> {
        let members = members.into_iter().map(Arc::new).collect();
        let held = Arc::new(Self {
            servers: Arc::clone(servers),
            identity,
            fence,
            renews: options.renews,
            over_at: options.max_hold.map(|max_hold| BootInstant::now() + max_hold),
            standing: Mutex::new(Standing::held(servers.majority, members)),
            token: CancellationToken::new(),
        });
        held.members().iter().for_each(|member| held.adopt(member));
        held
    }

    /// Adds the hold on a server, or releases it if the lock is not held any more.
    pub fn join(self: &Arc<Self>, member: Guard) {
        self.adopt(&member);
        let _late = lock(&self.standing).join(Arc::new(member));
    }

    fn adopt(self: &Arc<Self>, member: &Guard) {
        member.set_plan(self.over_at, self.renews);
        let held: Weak<Self> = Arc::downgrade(self);
        member.on_loss(move || held.upgrade().iter().for_each(|held| held.notify_loss()));
    }

    pub fn remaining(&self) -> Duration {
        lock(&self.standing).remaining()
    }

    pub fn lost_reason(&self) -> Option<LostReason> {
        lock(&self.standing).lost_reason()
    }

    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The holds on the servers.
    pub fn members(&self) -> Vec<Arc<Guard>> {
        lock(&self.standing).members().to_vec()
    }

    /// Notifies the holder once if too few holds are left. Those are kept, without renewal, until the guard is dropped: a
    /// holder that needs time to stop was promised that nobody else gets the lock before its leases expire.
    fn notify_loss(&self) {
        let Some(reason) = lock(&self.standing).on_loss() else {
            return;
        };
        self.members()
            .iter()
            .for_each(|member| member.set_plan(self.over_at, false));
        self.token.cancel();
        let kind = EventKind::Lost { reason };
        self.servers.report(&self.identity, kind);
    }

    /// Gives the lock up: why it was lost before, if it was, and the holds to release. Nothing if called again.
    pub fn give_up(&self) -> (Option<LostReason>, Vec<Arc<Guard>>) {
        let given_up = lock(&self.standing).give_up();
        self.token.cancel();
        given_up
    }
}

impl Member for Arc<Guard> {
    fn remaining(&self) -> Duration {
        Guard::remaining(self)
    }

    fn lost_reason(&self) -> Option<LostReason> {
        Guard::lost_reason(self)
    }
}
