//! Why renewals failed, as the events of the client tell it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis_dlock_client::{Event, EventKind, Owner};

use crate::outcome::word;

/// The word of the last error of each owner whose renewals fail.
#[derive(Clone, Default)]
pub struct Renewals(Arc<Mutex<BTreeMap<Owner, String>>>);

impl Renewals {
    pub fn on_event(&self, event: &Event) {
        match &event.kind {
            EventKind::RenewFailed { error } => {
                _ = self.failing().insert(event.owner.clone(), word(error).to_owned());
            }
            EventKind::RenewedAgain => _ = self.failing().remove(&event.owner),
            _ => {}
        }
    }

    pub fn last_error(&self, owner: &Owner) -> Option<String> {
        self.failing().get(owner).cloned()
    }

    fn failing(&self) -> MutexGuard<'_, BTreeMap<Owner, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
