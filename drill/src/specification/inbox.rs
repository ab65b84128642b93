//! Requests that wait in inboxes. What one record tells of a request holds for all of its sendings.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Call, Known};
use crate::history::{Micros, Request};

/// Notes in each call what the others tell of its request.
pub fn connect(calls: &mut [Call<'_>]) {
    let mut fences: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    let mut last_sent: BTreeMap<_, Micros> = BTreeMap::new();
    let mut given_back: BTreeMap<&str, Micros> = BTreeMap::new();
    for call in &*calls {
        if let Some(name) = call.name_in_inbox() {
            fences.entry(name).or_default().extend(call.fence());
            let sent = last_sent.entry(name).or_default();
            *sent = (*sent).max(if call.is_answer() { 0 } else { call.op.sent });
        }
        if matches!(call.op.request, Request::Release { .. }) {
            let sent = given_back.entry(&call.op.owner).or_insert(call.op.sent);
            *sent = call.op.sent.min(*sent);
        }
    }
    for call in calls {
        let Some(name) = call.name_in_inbox() else {
            continue;
        };
        let mut known = fences.get(&name).into_iter().flatten();
        call.known = Known {
            // Of several grants nobody knows which one this sending led to.
            fence: known.next().copied().filter(|_| known.next().is_none()),
            is_sent_again: last_sent.get(&name).is_some_and(|sent| *sent > call.op.sent),
            is_given_back: given_back
                .get(name.0)
                .is_some_and(|sent| *sent <= call.op.replied),
        };
    }
}
