//! A replica, which executes what the primary replicated.

use super::ops::Micros;
use super::server::{Command, Sent, Server, Stored};
use crate::wire::Event;

/// A server executes a record at `now`, or later if its clock is ahead.
pub fn execute(server: &mut Server, sent: &Sent, now: Micros) {
    server.set_now(server.now().max(now));
    server.receive(sent.lock, &sent.command);
    if let Command::Apply(_, events) = &sent.command {
        assert_same_events(events, &server.effects.events);
    }
    assert_follows(&sent.after, &server.stored(sent.lock));
}

/// The replica has the same holders, and their leases end no earlier.
fn assert_follows(primary: &[Stored], replica: &[Stored]) {
    let (theirs, their_ends): (Vec<_>, Vec<_>) = replica.iter().cloned().unzip();
    let (ours, our_ends): (Vec<_>, Vec<_>) = primary.iter().cloned().unzip();
    assert_eq!(theirs, ours, "owners, fences, limits and holds");
    let mut ends = their_ends.iter().zip(&our_ends);
    assert!(
        ends.all(|(theirs, ours)| theirs >= ours),
        "leases end at {their_ends:?} instead of {our_ends:?}"
    );
}

/// The replica publishes what the primary published. Only an EXTEND without effect may be missing.
fn assert_same_events(primary: &[Event], replica: &[Event]) {
    let is_extended = |event: &&Event| **event == Event::Extended;
    let others = |events: &[Event]| {
        let others = events.iter().filter(|event| !is_extended(event));
        others.copied().collect::<Vec<_>>()
    };
    assert_eq!(others(replica), others(primary));
    assert!(
        primary.iter().any(|event| is_extended(&event)) || !replica.iter().any(|event| is_extended(&event))
    );
}
