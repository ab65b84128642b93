//! What an inbox leaves, and when it ends.

use super::{SELF, held, queued};
use crate::effects::Effects;
use crate::inbox::{InboxStep, Received};
use crate::lock::Lock;
use crate::names::{Limit, LockNameRef};
use crate::testing::{IN_2025_UNIX_MS, ORIGIN, Outside, Server, inputs_at};
use crate::time::Instant;
use crate::transition::{Policy, ServerState};
use crate::wire::{Acquire, Acquired, Grants, Timeout, Wait};

#[test]
fn inbox_outlives_its_ttl_by_four_passes_of_the_loop() {
    let (mut server, _) = held();
    server.pass(999_999);
    server.run_due();
    server.pass(1);
    for _ in 0..4 {
        server.run_due();
        assert!(server.has_inbox("inbox"));
        server.pass(10_000);
    }
    server.run_due();
    assert!(!server.has_inbox("inbox"));
}

#[test]
fn inbox_that_ends_empty_leaves_nothing_to_clear() {
    let (mut server, _) = held();
    server.grants("inbox 0 TTL 0");
    assert!(!server.has_inbox("inbox"));
    assert_eq!(server.state().inboxes.next_wakeup(), None);
}

#[test]
fn call_in_the_last_pass_keeps_the_inbox() {
    let (mut server, cursor) = held();
    server.pass(1_000_000);
    for _ in 0..4 {
        server.run_due();
        server.pass(10_000);
    }
    server.grants(&format!("inbox {cursor}"));
    server.run_due();
    assert!(server.has_inbox("inbox"));
}

#[test]
fn ttl_that_was_named_last_counts() {
    let (mut server, cursor) = held();
    server.grants(&format!("inbox {cursor} TTL 2000"));
    server.grants(&format!("inbox {cursor}"));
    server.outlast_ttl();
    assert!(server.has_inbox("inbox"));
}

#[test]
fn ttl_of_0_ends_the_inbox_with_its_reply() {
    let (mut server, cursor) = held();
    server.grants(&format!("inbox {cursor} TTL 0"));
    assert!(!server.has_inbox("inbox"));
}

#[test]
fn inbox_does_not_end_while_a_call_waits() {
    let (mut server, cursor) = held();
    server.grants_waits(&format!("inbox {cursor} BLOCK 60000"));
    server.outlast_ttl();
    assert!(server.has_inbox("inbox"));
}

#[test]
fn inbox_whose_reader_is_lost_ends_after_its_ttl() {
    let (mut server, cursor) = held();
    let call = server.grants_waits(&format!("inbox {cursor} BLOCK 60000"));
    server.lose_reader(call);
    assert!(server.has_inbox("inbox"));
    server.outlast_ttl();
    assert!(!server.has_inbox("inbox"));
}

#[test]
fn time_of_an_inbox_stands_still_while_clients_are_paused() {
    let (mut server, _) = held();
    let look = |server: &mut Server, is_paused| {
        let now = server.clock().now;
        server.state_mut().inboxes.look_at_pauses(is_paused, now);
    };
    look(&mut server, true);
    server.outlast_ttl();
    assert!(server.has_inbox("inbox"), "in the pause");
    look(&mut server, false);
    server.run_due();
    assert!(server.has_inbox("inbox"), "after it");
    server.outlast_ttl();
    assert!(!server.has_inbox("inbox"));
}

#[test]
fn waiters_of_an_ended_inbox_leave_all_queues() {
    let (mut server, _) = queued();
    server.queued("ACQUIRE b bob 60000 QUEUE inbox 0 REQID r3");
    server.waits("ACQUIRE a dave 60000 BLOCK 0");
    server.outlast_ttl();
    assert_eq!(
        (
            server.state().wait_table.waiters(),
            server.state().inboxes.waiters()
        ),
        (1, 0)
    );
    server.released("RELEASE a alice");
    assert_eq!(server.owners("a"), ["dave"]);
}

#[test]
fn unread_grant_of_an_ended_inbox_is_rolled_back() {
    let (mut server, _) = queued();
    let dave = server.waits("ACQUIRE a dave 60000 BLOCK 0");
    server.released("RELEASE a alice");
    assert_eq!(server.owners("a"), ["bob"]);
    server.outlast_ttl();
    assert!(server.has_been_granted(dave));
}

/// Its reply may have arrived.
#[test]
fn grant_that_a_reply_carried_outlives_its_inbox() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    server.grants(&format!("inbox {cursor}"));
    server.outlast_ttl();
    assert!(!server.has_inbox("inbox"));
    assert_eq!(server.owners("a"), ["bob"]);
}

#[test]
fn grant_that_the_reply_to_a_repeated_request_carried_outlives_its_inbox() {
    let (mut server, _) = queued();
    server.released("RELEASE a alice");
    server.granted("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    server.outlast_ttl();
    assert!(!server.has_inbox("inbox"));
    assert_eq!(server.owners("a"), ["bob"]);
}

/// Its client was killed before the reply was written.
#[test]
fn grant_for_a_reader_that_is_gone_is_rolled_back_with_its_inbox() {
    let (mut server, cursor) = queued();
    let call = server.grants_waits(&format!("inbox {cursor} BLOCK 2000"));
    server.released("RELEASE a alice");
    server.lose_reader(call);
    server.outlast_ttl();
    assert!(server.lock("a").is_free());
}

/// The inbox has ended, and its waiters have not left yet.
#[test]
fn grant_to_a_waiter_of_an_ended_inbox_is_rolled_back() {
    let (mut server, cursor) = queued();
    let dave = server.waits("ACQUIRE a dave 60000 BLOCK 0");
    server.grants(&format!("inbox {cursor} TTL 0"));
    server.released("RELEASE a alice");
    assert_eq!(server.owners("a"), ["bob"]);
    server.run_due();
    assert!(server.has_been_granted(dave));
}

#[test]
fn request_repeated_while_its_ended_inbox_is_cleared_keeps_its_place_in_the_new_one() {
    let (mut server, cursor) = queued();
    server.grants(&format!("inbox {cursor} TTL 0"));
    let new = server.grants("inbox 0").cursor;
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    server.run_due();
    server.released("RELEASE a alice");
    assert_eq!(server.next_answers(new), ["granted r1 a bob"]);
}

#[test]
fn demotion_ends_all_inboxes_and_their_calls() {
    let (mut server, cursor) = queued();
    server.grants("other 0");
    let call = server.grants_waits(&format!("inbox {cursor} BLOCK 2000"));
    assert_eq!(server.state_mut().demote(), [call]);
    assert!(server.replies_to(call).is_none());
    assert!(!server.has_inbox("inbox") && !server.has_inbox("other"));
}

const LOCK: LockNameRef<'_> = LockNameRef { db: 0, key: b"lock" };

/// A server on which this many requests wait for one lock through one inbox, which has ended.
fn ended_with(waiters: usize) -> (ServerState, Instant) {
    let (mut state, mut lock, mut effects) = (ServerState::default(), Lock::default(), Effects::default());
    let now = Instant::from_micros(123_456);
    let inputs = inputs_at(now);
    state.set_policy(Policy {
        max_waiters_per_lock: waiters,
        max_waiters: 2 * waiters,
        max_inboxes: 1,
        ..Policy::default()
    });
    let grants = |state: &mut ServerState, ttl_ms| {
        let request = Grants {
            inbox: b"inbox",
            cursor: 0,
            block_ms: None,
            ttl_ms: Some(ttl_ms),
        };
        assert!(state.receive(&request, SELF, &inputs).is_ok());
    };
    grants(&mut state, 1_000);
    for n in 0..=waiters {
        let (owner, wait) = (
            n.to_string(),
            Wait {
                timeout: Timeout::Infinite,
                inbox: Some(b"inbox"),
            },
        );
        let request = Acquire {
            owner: owner.as_bytes(),
            lease_ms: 60_000,
            limit: Limit::MUTEX,
            wait: Some(wait),
            request_id: Some(b"r"),
            min_fence: None,
        };
        let mut transition = state.begin(&inputs, LOCK, &mut lock, &mut effects);
        let acquired = transition.acquire(&request, SELF.user);
        // The first of them holds it.
        assert_eq!(n > 0, matches!(acquired, Ok(Acquired::Queued(_))), "{acquired:?}");
    }
    grants(&mut state, 0);
    (state, now)
}

/// Between two steps the module looks at its clock.
#[test]
#[cfg_attr(miri, ignore = "100 000 waiters")]
fn ended_inbox_of_100_000_waiters_is_cleared_one_waiter_a_step() {
    let (mut state, now) = ended_with(100_000);
    for left in (0..100_000).rev() {
        assert!(matches!(state.process_inboxes(now), Some(InboxStep::Leave(..))));
        assert_eq!(state.wait_table.waiters(), left);
    }
    assert_eq!(state.process_inboxes(now), Some(InboxStep::Done));
    assert_eq!(state.process_inboxes(now), None);
}

/// The last leave first: a queue becomes due once, not with each of its waiters.
#[test]
fn queue_of_a_cleared_inbox_is_due_when_the_first_waiter_has_left() {
    let (mut server, cursor) = queued();
    server.waits("ACQUIRE a dave 60000 BLOCK 0");
    server.grants(&format!("inbox {cursor} TTL 0"));
    let now = server.clock().now;
    for waiters in [2, 1] {
        assert!(!server.is_due(0));
        server.state_mut().process_inboxes(now);
        assert_eq!(server.state().wait_table.waiters(), waiters);
    }
    assert!(server.is_due(0));
}

#[test]
fn grants_that_did_not_fit_into_the_reply_are_given_up_with_the_inbox() {
    const WAITERS: usize = 1_001;
    let (mut server, cursor) = held();
    for number in 0..WAITERS {
        server.queued(&format!(
            "ACQUIRE a owner-{number} 60000 SHARED QUEUE inbox 0 REQID r{number}"
        ));
    }
    server.released("RELEASE a alice REQID r0");
    server.process_due();
    assert_eq!(server.owners("a").len(), WAITERS);
    let carried = server.grants(&format!("inbox {cursor}")).answers.len();
    assert!(carried < WAITERS, "{carried}");
    server.outlast_ttl();
    assert_eq!(server.owners("a").len(), carried);
}

#[test]
fn cursors_of_server_that_restarts_with_its_clock_set_back_are_larger() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice REQID r0");
    let before = server.grants(&format!("inbox {cursor}")).cursor;
    let mut restarted = Server::load(&server.save(), server.now(), ORIGIN);
    restarted.start(0);
    let an_hour_ago = Outside::at_unix_ms(IN_2025_UNIX_MS - 3_600_000);
    let request = Grants::parse(b"inbox", [b"0".as_slice()].into_iter()).expect("a request");
    let now = restarted.clock().now;
    let received = restarted
        .state_mut()
        .receive(&request, SELF, &an_hour_ago.inputs(now));
    let Ok(Received::Replied { reply, .. }) = received else {
        panic!("{received:?}");
    };
    assert!(reply.cursor > before, "{} after {before}", reply.cursor);
}
