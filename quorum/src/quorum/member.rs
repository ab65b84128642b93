//! What a guard on one of several servers does for the lock on all of them.

use std::time::Duration;

use crate::clock::BootInstant;
use crate::connect::Address;
use crate::error::Error;
use crate::guard::{Guard, extend};
use crate::release::give_up;

impl Guard {
    /// Raises the fence, and extends the lease. Until there is a reply, the fence is not known.
    pub(super) fn raise(
        &self,
        lease: Duration,
        to: u64,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (client, held) = (self.client.clone(), self.held.clone());
        let command = held.identity.extend_by_id(lease).min_fence(to);
        held.set_fence(0);
        async move {
            extend(&client, &held, command.into()).await?;
            held.set_fence(to);
            Ok(())
        }
    }

    /// From now on these options apply, of the lock on all servers.
    pub(super) fn set_plan(&self, over_at: Option<BootInstant>, renews: bool) {
        if over_at.is_some() || !renews {
            self.held.with(|hold| hold.replan(over_at, renews));
            self.client.renewal_thread.watch(&self.held);
        }
    }

    /// The server's address.
    pub(super) fn server(&self) -> Address {
        self.client.address().clone()
    }

    /// Gives the hold up. The release is for the renewal thread.
    pub(super) fn give_up(mut self) -> impl Future<Output = Result<u64, Error>> + Send + use<> {
        self.is_settled = true;
        give_up(&self.client, self.held.clone())
    }

    /// Called by the renewal thread when the hold is lost.
    pub(super) fn on_loss(&self, listener: impl Fn() + Send + Sync + 'static) {
        // It is set once.
        let _ = self.held.loss_listener.set(Box::new(listener));
    }
}
