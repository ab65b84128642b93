//! What a guard on a majority of servers shares with the renewal thread: the holds on the servers.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::majority::Majority;
use super::servers::Servers;
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
    state: Mutex<State>,
    /// Cancelled when the lock is lost or given up.
    token: CancellationToken,
}

struct State {
    standing: Standing,
    members: Vec<Arc<Guard>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Held,
    GivenUp,
    Lost(LostReason),
}

impl Held {
    pub fn new(
        servers: &Arc<Servers>,
        identity: RequestIdentity,
        fence: u64,
        options: &Options,
        members: Vec<Guard>,
    ) -> Arc<Self> {
        let held = Arc::new(Self {
            servers: Arc::clone(servers),
            identity,
            fence,
            renews: options.renews,
            over_at: options.max_hold.map(|max_hold| BootInstant::now() + max_hold),
            state: Mutex::new(State {
                standing: Standing::Held,
                members: members.into_iter().map(Arc::new).collect(),
            }),
            token: CancellationToken::new(),
        });
        held.members().iter().for_each(|member| held.adopt(member));
        held
    }

    /// Adds the hold on a server, or releases it if the lock is not held any more.
    pub fn join(self: &Arc<Self>, member: Guard) {
        self.adopt(&member);
        let mut state = lock(&self.state);
        if state.standing == Standing::Held {
            state.members.push(Arc::new(member));
        }
    }

    fn adopt(self: &Arc<Self>, member: &Guard) {
        member.set_plan(self.over_at, self.renews);
        let held: Weak<Self> = Arc::downgrade(self);
        member.on_loss(move || held.upgrade().iter().for_each(|held| held.notify_loss()));
    }

    pub fn remaining(&self) -> Duration {
        lock(&self.state).remaining(self.servers.majority)
    }

    pub fn lost_reason(&self) -> Option<LostReason> {
        lock(&self.state).lost_reason(self.servers.majority)
    }

    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The holds on the servers.
    pub fn members(&self) -> Vec<Arc<Guard>> {
        lock(&self.state).members.clone()
    }

    /// Notifies the holder once if too few holds are left. Those are kept, without renewal, until the guard is dropped: a
    /// holder that needs time to stop was promised that nobody else gets the lock before its leases expire.
    fn notify_loss(&self) {
        let (reason, members) = {
            let mut state = lock(&self.state);
            let reason = state.lost_reason(self.servers.majority);
            let Some(reason) = reason.filter(|_| state.standing == Standing::Held) else {
                return;
            };
            state.standing = Standing::Lost(reason);
            (reason, state.members.clone())
        };
        members
            .iter()
            .for_each(|member| member.set_plan(self.over_at, false));
        self.token.cancel();
        let kind = EventKind::Lost { reason };
        self.servers.report(&self.identity, kind);
    }

    /// Gives the lock up: why it was lost before, if it was, and the holds to release. Nothing if called again.
    pub fn give_up(&self) -> (Option<LostReason>, Vec<Arc<Guard>>) {
        let mut state = lock(&self.state);
        let reason = state.lost_reason(self.servers.majority);
        state.standing = reason.map_or(Standing::GivenUp, Standing::Lost);
        self.token.cancel();
        (reason, std::mem::take(&mut state.members))
    }
}

impl State {
    fn remaining(&self, majority: Majority) -> Duration {
        match self.standing {
            Standing::Held => majority.remaining(self.members.iter().map(|member| member.remaining())),
            Standing::GivenUp | Standing::Lost(_) => Duration::ZERO,
        }
    }

    fn lost_reason(&self, majority: Majority) -> Option<LostReason> {
        match self.standing {
            Standing::Lost(reason) => Some(reason),
            Standing::GivenUp => None,
            Standing::Held if !self.remaining(majority).is_zero() => None,
            Standing::Held => {
                Some(majority.lost_reason(self.members.iter().filter_map(|member| member.lost_reason())))
            }
        }
    }
}
