//! What a guard on a majority of servers shares with the renewal thread: the holds on the servers.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

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
        } else {
            drop(state);
            drop(member);
        }
    }

    fn adopt(self: &Arc<Self>, member: &Guard) {
        member.finish_acquisition(self.over_at, self.renews);
        let held: Weak<Self> = Arc::downgrade(self);
        member.on_loss(move || held.upgrade().iter().for_each(|held| held.notify_loss()));
    }

    pub fn remaining(&self) -> Duration {
        let state = lock(&self.state);
        match state.standing {
            Standing::Held => self.remaining_of(&state.members),
            Standing::GivenUp | Standing::Lost(_) => Duration::ZERO,
        }
    }

    fn remaining_of(&self, members: &[Arc<Guard>]) -> Duration {
        let each = members.iter().map(|member| member.remaining());
        self.servers.majority.remaining(each)
    }

    pub fn lost_reason(&self) -> Option<LostReason> {
        self.lost_reason_of(&lock(&self.state))
    }

    fn lost_reason_of(&self, state: &State) -> Option<LostReason> {
        match state.standing {
            Standing::Lost(reason) => Some(reason),
            Standing::GivenUp => None,
            Standing::Held if !self.remaining_of(&state.members).is_zero() => None,
            Standing::Held => {
                let each = state.members.iter().filter_map(|member| member.lost_reason());
                Some(self.servers.majority.lost_reason(each))
            }
        }
    }

    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub fn node_timeout(&self) -> Duration {
        self.servers.node_timeout
    }

    /// The holds on the servers.
    pub fn members(&self) -> Vec<Arc<Guard>> {
        lock(&self.state).members.clone()
    }

    /// Notifies the holder once if too few holds are left, and releases them: they would block others for nothing.
    pub fn notify_loss(&self) {
        let mut state = lock(&self.state);
        if state.standing != Standing::Held {
            return;
        }
        let Some(reason) = self.lost_reason_of(&state) else {
            return;
        };
        state.standing = Standing::Lost(reason);
        let members = std::mem::take(&mut state.members);
        drop(state);
        self.token.cancel();
        self.servers
            .reporter
            .report(&self.identity, EventKind::Lost { reason });
        drop(members);
    }

    /// Gives the lock up: why it was lost before, if it was, and the holds to release. Nothing if called again.
    pub fn give_up(&self) -> (Option<LostReason>, Vec<Arc<Guard>>) {
        let mut state = lock(&self.state);
        let reason = self.lost_reason_of(&state);
        state.standing = reason.map_or(Standing::GivenUp, Standing::Lost);
        let members = std::mem::take(&mut state.members);
        drop(state);
        self.token.cancel();
        (reason, members)
    }
}
