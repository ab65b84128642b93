//! Requests that wait in inboxes: what one record tells of a request holds for all of its sendings, as long as its inbox
//! lives.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::call::{Call, Known};
use crate::history::{History, Micros, Request, ServerTerm};

/// By process: until when its inboxes live for certain. What waits in them keeps its place, however often it is sent.
pub fn ends(history: &History) -> BTreeMap<&str, Micros> {
    let mut calls: Vec<_> = history.calls.iter().collect();
    calls.sort_by_key(|call| call.replied);
    let mut last_sent: HashMap<(&str, ServerTerm), Micros> = HashMap::new();
    let mut ends = BTreeMap::new();
    for call in calls {
        let former = last_sent.insert((&*call.process, call.server), call.sent);
        // One that makes a new inbox found none.
        if let Some(sent) = former.filter(|_| call.made) {
            ends.entry(&*call.process).or_insert(sent);
        }
    }
    ends
}

/// Notes in each call what the others tell of its request. What follows the end of an inbox is left out, and what follows
/// a request that is sent again or has no reply: there are too many runs to look at.
pub fn connect_and_cut(calls: &mut Vec<Call<'_>>, ends: &BTreeMap<&str, Micros>) {
    connect(calls);
    let mut first_sent = BTreeMap::new();
    let mut end = Micros::MAX;
    for call in calls.iter().filter(|call| call.is_queued()) {
        let sent = call.op.sent;
        let first = first_sent.entry(call.name_in_inbox()).or_insert(sent);
        if *first != sent {
            end = end.min(sent.max(*first));
            *first = sent.min(*first);
        }
        if call.op.reply.is_unknown() {
            end = end.min(sent);
        }
        let process = call.op.owner.split('.').next();
        end = end.min(
            process
                .and_then(|process| ends.get(process))
                .copied()
                .unwrap_or(end),
        );
    }
    calls.retain_mut(|call| {
        call.is_certain &= call.op.replied < end;
        call.op.sent < end
    });
}

fn connect(calls: &mut [Call<'_>]) {
    let mut fences: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    let at = |server: ServerTerm| (server.port, server.term);
    let mut given_back: BTreeMap<&str, Micros> = BTreeMap::new();
    for call in &*calls {
        if let Some(name) = call.name_in_inbox() {
            let here = (name, at(call.op.server));
            fences.entry(here).or_default().extend(call.fence());
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
        // Where a server is replaced, or a slot leaves, the queue is lost.
        let here = (name, at(call.op.server));
        let mut known = fences.get(&here).into_iter().flatten();
        call.known = Known {
            // Of several grants nobody knows which one this sending led to.
            fence: known.next().copied().filter(|_| known.next().is_none()),
            is_given_back: given_back
                .get(name.0)
                .is_some_and(|sent| *sent <= call.op.replied),
        };
    }
}
