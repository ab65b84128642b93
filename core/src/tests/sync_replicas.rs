//! Grants that replicas have before anybody is told: the contract of `dlock.min-sync-replicas`, on the host in memory.
//! Its two replicas acknowledge at once, late, or never.

use super::dsl::{code, shown};
use crate::engine::{Host, Process, answering, events, held_back};
use crate::inbox::Reply;
use crate::memory::Memory;
use crate::names::Call;
use crate::time::Instant;
use crate::transition::{Offset, Policy};
use crate::wire::Grants;
use crate::{Answer, Answered};

/// A primary whose requests are the text of commands, and replies too.
struct Primary {
    host: Memory,
    replies: Vec<(Call, String)>,
}

/// Nothing is told before both replicas have it, within a second. None has anything yet.
fn primary() -> Primary {
    let mut primary = Primary {
        host: Memory::default(),
        replies: Vec::new(),
    };
    primary.host.clocks.now = Instant::from_micros(5_000_000);
    primary.host.replicas = vec![0, 0];
    primary.set_policy(|policy| {
        *policy = Policy {
            max_waiters_per_lock: 10,
            max_waiters: 10,
            max_inboxes: 10,
            min_sync_replicas: 2,
            sync_timeout_ms: 1_000,
            ..*policy
        };
    });
    primary
}

/// As [`primary`]. Alice holds `a`, and was told so.
fn held() -> Primary {
    let mut primary = primary();
    let alice = primary.held_back("ACQUIRE a alice 60000 REQID r0");
    primary.acknowledge_all();
    assert_eq!(primary.reply(alice), "granted 60000 0 1");
    primary
}

/// As [`held`]. No replica acknowledges what comes.
fn stalled() -> Primary {
    let primary = held();
    assert_eq!(primary.host.replicas, [primary.host.offset; 2]);
    primary
}

impl Primary {
    fn set_policy(&mut self, change: impl FnOnce(&mut Policy)) {
        let mut policy = *self.host.state().server.policy();
        change(&mut policy);
        held_back::set_policy(&mut self.host, policy);
        self.run_due();
    }

    /// See [`Memory::ask`]. Timers fire afterwards.
    fn send(&mut self, command: &str) -> Result<String, Call> {
        let reply = self.host.ask(command);
        self.run_due();
        reply
    }

    /// The reply to a request that is not held back.
    #[track_caller]
    fn told(&mut self, command: &str) -> String {
        let reply = self.send(command);
        reply.unwrap_or_else(|_| panic!("{command} is held back"))
    }

    /// Sends a request whose reply is held back, or that waits.
    #[track_caller]
    fn held_back(&mut self, command: &str) -> Call {
        let call = self.send(command).expect_err("it is held back");
        assert!(self.is_silent(call), "{command}");
        call
    }

    /// Sends a QUEUE, whose answer comes later.
    #[track_caller]
    fn queued(&mut self, command: &str) {
        assert!(self.told(command).starts_with("queued"), "{command}");
    }

    /// What an inbox has for a call with this cursor: its cursor, and the answers.
    fn grants(&mut self, cursor: u64) -> (u64, Vec<String>) {
        let request = Grants {
            inbox: b"inbox",
            cursor,
            block_ms: None,
            ttl_ms: Some(500),
        };
        let flags = self.host.flags;
        let reply = answering::receive(&mut self.host, flags, b"", &request).expect("an inbox");
        let reply = reply.expect("it does not wait");
        (reply.cursor, reply.answers.iter().map(shown_answer).collect())
    }

    /// The replicas have acknowledged these offsets.
    fn acknowledge(&mut self, offsets: &[Offset]) {
        self.host.replicas = offsets.to_vec();
        held_back::look_soon(&mut self.host);
        self.run_due();
    }

    fn acknowledge_all(&mut self) {
        self.acknowledge(&[self.host.offset; 2]);
    }

    /// A replica is online, or not any more.
    fn set_replicas(&mut self, offsets: &[Offset]) {
        self.host.replicas = offsets.to_vec();
        events::replica_online(&mut self.host);
        self.run_due();
    }

    fn pass_ms(&mut self, ms: u64) {
        self.host.clocks.now = self.host.clocks.now.after_ms(ms);
        self.run_due();
    }

    fn run_due(&mut self) {
        while self.host.next_due().is_some_and(|at| at <= self.host.clocks.now) {
            self.host.run_due();
        }
        for call in self.host.take_woken() {
            let reply = match answering::reply(&mut self.host, call) {
                Some(Reply::Answer(Answer::Granted(granted))) => shown(&granted),
                Some(Reply::Answer(Answer::Extended(lease_ms))) => format!("lease {lease_ms}"),
                Some(Reply::Answer(Answer::Rejected(error))) => code(&error.to_string()),
                Some(Reply::Answer(Answer::Elsewhere(error))) => code(&error),
                other => panic!("{other:?}"),
            };
            self.replies.push((call, reply));
        }
    }

    #[track_caller]
    fn reply(&self, call: Call) -> &str {
        let reply = self.replies.iter().find(|(to, _)| *to == call);
        &reply.expect("a reply").1
    }

    fn is_silent(&self, call: Call) -> bool {
        self.replies.iter().all(|(to, _)| *to != call)
    }

    fn disconnect(&mut self, call: Call) {
        assert!(self.host.forget_blocked(call), "its client waits");
        answering::lose_reader(&mut self.host, call);
    }

    #[track_caller]
    fn assert_owner(&self, key: &str, owner: &str) {
        assert_eq!(self.host.owner(key).as_deref(), Some(owner));
    }
}

fn shown_answer(answered: &Answered) -> String {
    match &answered.answer {
        Answer::Granted(granted) => shown(granted),
        Answer::Rejected(error) => code(&error.to_string()),
        other => format!("{other:?}"),
    }
}

#[test]
fn grant_is_told_when_enough_replicas_have_acknowledged_it() {
    let mut primary = primary();
    let alice = primary.held_back("ACQUIRE a alice 60000");
    primary.assert_owner("a", "alice");
    let offset = primary.host.offset;
    primary.acknowledge(&[offset, offset - 1]);
    assert!(primary.is_silent(alice));
    primary.pass_ms(30);
    primary.acknowledge(&[offset, offset]);
    assert_eq!(primary.reply(alice), "granted 59970 30 1");
}

#[test]
fn replicas_are_asked_once_for_the_changes_of_a_pass() {
    let mut primary = primary();
    primary.host.acknowledges_at_once = true;
    let alice = primary
        .send("ACQUIRE a alice 60000")
        .expect_err("it is held back");
    assert_eq!(primary.reply(alice), "granted 60000 0 1");
}

#[test]
fn without_the_setting_nothing_is_held_back() {
    let mut primary = primary();
    primary.set_policy(|policy| policy.min_sync_replicas = 0);
    assert_eq!(primary.told("ACQUIRE a alice 60000"), "granted 60000 0 1");
    assert_eq!(primary.told("EXTEND a alice 60000"), "lease 60000");
}

#[test]
fn reentry_and_extend_are_held_back_too() {
    let mut primary = held();
    let again = primary.held_back("ACQUIRE a alice 60000");
    let extended = primary.held_back("EXTEND a alice 90000");
    let offset = primary.host.offset;
    primary.acknowledge(&[offset, offset - 2]);
    assert!(primary.is_silent(again) && primary.is_silent(extended));
    primary.pass_ms(30);
    primary.acknowledge_all();
    assert_eq!(primary.reply(again), "granted 59970 30 2");
    assert_eq!(primary.reply(extended), "lease 89970");
}

#[test]
fn what_gives_no_hold_is_told_at_once() {
    let mut primary = held();
    assert_eq!(primary.told("ACQUIRE a bob 60000"), "null");
    assert_eq!(primary.told("EXTEND a bob 60000"), "NOTOWNER");
    assert_eq!(primary.told("RELEASE a alice"), "left 0");
}

#[test]
fn handover_is_told_when_replicas_have_acknowledged_it() {
    let mut primary = held();
    let bob = primary.held_back("ACQUIRE a bob 60000 BLOCK 0");
    primary.pass_ms(20);
    assert_eq!(primary.told("RELEASE a alice"), "left 0");
    primary.assert_owner("a", "bob");
    assert!(primary.is_silent(bob));
    primary.pass_ms(10);
    primary.acknowledge_all();
    assert_eq!(primary.reply(bob), "granted 59990 30 1");
}

#[test]
fn granted_answer_is_in_the_inbox_when_replicas_have_acknowledged_it() {
    let mut primary = held();
    let (cursor, _) = primary.grants(0);
    primary.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    primary.queued("ACQUIRE b bob 60000 QUEUE inbox 0 REQID r2");
    primary.told("RELEASE a alice");
    primary.assert_owner("b", "bob");
    assert_eq!(primary.grants(cursor).1, [""; 0]);
    primary.pass_ms(30);
    primary.acknowledge_all();
    let granted = primary.grants(cursor).1;
    assert_eq!(granted, ["granted 59970 30 1", "granted 59970 30 1"]);
}

#[test]
fn queue_with_a_grant_to_a_missing_or_full_inbox_changes_nothing() {
    let mut primary = held();
    assert_eq!(
        primary.told("ACQUIRE b bob 60000 QUEUE inbox 0 REQID r"),
        "NOINBOX"
    );
    primary.grants(0);
    primary.set_policy(|policy| policy.max_waiters = 0);
    assert_eq!(
        primary.told("ACQUIRE b bob 60000 QUEUE inbox 0 REQID r"),
        "QUEUEFULL"
    );
    assert_eq!(primary.host.owner("b"), None);
}

#[test]
fn grant_that_is_not_acknowledged_in_time_is_rolled_back() {
    let mut primary = stalled();
    let bob = primary.held_back("ACQUIRE b bob 60000");
    primary.pass_ms(999);
    assert!(primary.is_silent(bob));
    primary.assert_owner("b", "bob");
    primary.pass_ms(1);
    assert_eq!(primary.reply(bob), "NOREPLICAS");
    assert_eq!(primary.host.owner("b"), None);
    let counters = &primary.host.engine().counters;
    assert_eq!((counters.sync_timeouts, counters.grants_rolled_back), (1, 1));
}

#[test]
fn answer_in_an_inbox_that_is_not_acknowledged_in_time_is_an_error() {
    let mut primary = stalled();
    let (cursor, _) = primary.grants(0);
    primary.set_policy(|policy| policy.sync_timeout_ms = 100);
    primary.queued("ACQUIRE b bob 60000 QUEUE inbox 0 REQID r");
    primary.pass_ms(100);
    assert_eq!(primary.grants(cursor).1, ["NOREPLICAS"]);
    assert_eq!(primary.host.owner("b"), None);
}

#[test]
fn reentry_that_is_not_acknowledged_takes_back_one_hold() {
    let mut primary = stalled();
    let again = primary.held_back("ACQUIRE a alice 60000 REQID r1");
    primary.pass_ms(1_000);
    assert_eq!(primary.reply(again), "NOREPLICAS");
    assert_eq!(primary.told("RELEASE a alice REQID r0"), "left 0");
}

#[test]
fn extend_that_is_not_acknowledged_leaves_the_lease_longer() {
    let mut primary = stalled();
    primary.pass_ms(30_000);
    let extended = primary.held_back("EXTEND a alice 60000");
    primary.pass_ms(1_000);
    assert_eq!(primary.reply(extended), "NOREPLICAS");
    primary.pass_ms(58_999);
    primary.assert_owner("a", "alice");
}

#[test]
fn next_waiter_is_not_tried_before_replicas_answer() {
    let mut primary = stalled();
    let bob = primary.held_back("ACQUIRE a bob 60000 BLOCK 0");
    let carol = primary.held_back("ACQUIRE a carol 60000 BLOCK 0");
    primary.told("RELEASE a alice");
    let overdue = primary.host.offset;
    primary.pass_ms(1_000);
    assert_eq!(primary.reply(bob), "NOREPLICAS");
    assert_eq!(primary.host.owner("a"), None);
    primary.acknowledge(&[overdue - 1, overdue]);
    primary.pass_ms(1_000);
    assert_eq!(
        primary.host.owner("a"),
        None,
        "one replica lacks the change that was overdue"
    );
    primary.acknowledge(&[overdue, overdue]);
    primary.assert_owner("a", "carol");
    primary.acknowledge_all();
    assert!(primary.reply(carol).starts_with("granted"));
}

#[test]
fn with_too_few_replicas_requests_are_rejected_and_waiters_wait() {
    let mut primary = held();
    primary.set_replicas(&[primary.host.offset]);
    assert_eq!(primary.told("ACQUIRE b bob 60000"), "NOREPLICAS");
    assert_eq!(primary.told("ACQUIRE a alice 60000"), "NOREPLICAS");
    assert_eq!(primary.told("EXTEND a alice 60000"), "NOREPLICAS");
    assert_eq!(primary.told("EXTEND a bob 60000"), "NOTOWNER");
    let bob = primary.held_back("ACQUIRE b bob 60000 BLOCK 0");
    let carol = primary.held_back("ACQUIRE a carol 60000 BLOCK 0");
    let again = primary.held_back("ACQUIRE a alice 60000 BLOCK 0");
    assert_eq!(primary.told("RELEASE a alice"), "left 0");
    primary.pass_ms(100);
    assert_eq!((primary.host.owner("a"), primary.host.owner("b")), (None, None));
    primary.set_replicas(&[0, 0]);
    primary.acknowledge_all();
    assert!(primary.reply(bob).starts_with("granted") && primary.reply(carol).starts_with("granted"));
    assert!(primary.is_silent(again), "it came after carol");
}

#[test]
fn holder_that_waits_for_replicas_reenters_when_they_are_back() {
    let mut primary = held();
    primary.set_replicas(&[]);
    let again = primary.held_back("ACQUIRE a alice 60000 BLOCK 0");
    primary.set_replicas(&[0, 0]);
    primary.acknowledge_all();
    assert!(primary.reply(again).ends_with(" 2"), "{}", primary.reply(again));
}

#[test]
fn repeat_of_a_grant_that_was_told_stays_if_it_is_not_acknowledged() {
    let mut primary = stalled();
    let other = primary.held_back("ACQUIRE b bob 60000");
    let again = primary.held_back("ACQUIRE a alice 60000 REQID r0");
    let third = primary.held_back("ACQUIRE a alice 60000 REQID r0");
    assert_eq!(primary.reply(again), "UNBLOCKED");
    primary.pass_ms(1_000);
    assert_eq!(
        (primary.reply(other), primary.reply(third)),
        ("NOREPLICAS", "NOREPLICAS")
    );
    primary.assert_owner("a", "alice");
}

#[test]
fn repeat_takes_over_a_grant_that_nobody_was_told_of() {
    for is_handover in [false, true] {
        let mut primary = held();
        let key = if is_handover { "a" } else { "b" };
        let first = primary.held_back(&format!("ACQUIRE {key} bob 60000 BLOCK 0 REQID r1"));
        primary.told("RELEASE a alice");
        primary.assert_owner(key, "bob");
        let again = primary.held_back(&format!("ACQUIRE {key} bob 60000 REQID r1"));
        assert_eq!(primary.reply(first), "UNBLOCKED");
        primary.disconnect(again);
        primary.acknowledge_all();
        assert_eq!(primary.host.owner(key), None, "nobody was told of the grant");
    }
}

#[test]
fn repeat_that_is_told_keeps_the_grant_of_a_client_that_is_gone() {
    let mut primary = held();
    let first = primary.held_back("ACQUIRE b bob 60000 REQID r1");
    primary.disconnect(first);
    let again = primary.held_back("ACQUIRE b bob 60000 REQID r1");
    primary.acknowledge_all();
    assert_eq!(primary.reply(again), "granted 60000 0 1");
    primary.assert_owner("b", "bob");
    primary.pass_ms(2_000);
    primary.assert_owner("b", "bob");
}

#[test]
fn grant_to_a_client_that_is_gone_is_rolled_back() {
    for acknowledges in [false, true] {
        let mut primary = stalled();
        let bob = primary.held_back("ACQUIRE b bob 60000");
        primary.disconnect(bob);
        if acknowledges {
            primary.acknowledge_all();
        } else {
            primary.pass_ms(1_000);
        }
        assert_eq!(primary.host.owner("b"), None);
    }
}

#[test]
fn grant_in_an_inbox_that_ends_before_it_is_told_is_rolled_back() {
    let mut primary = held();
    primary.set_policy(|policy| policy.sync_timeout_ms = 60_000);
    primary.grants(0);
    primary.queued("ACQUIRE b bob 60000 QUEUE inbox 0 REQID r1");
    primary.pass_ms(500);
    (0..5).for_each(|_| primary.pass_ms(50));
    assert_eq!(primary.host.engine().server.inboxes.len(), 0);
    primary.assert_owner("b", "bob");
    primary.acknowledge_all();
    assert_eq!(primary.host.owner("b"), None);
}

#[test]
fn setting_that_is_lowered_lets_go_what_is_held_back() {
    let mut primary = held();
    let bob = primary.held_back("ACQUIRE b bob 60000");
    primary.acknowledge(&[primary.host.offset, 0]);
    primary.set_policy(|policy| policy.min_sync_replicas = 1);
    assert_eq!(primary.reply(bob), "granted 60000 0 1");
    primary.set_replicas(&[]);
    let carol = primary.held_back("ACQUIRE c carol 60000 BLOCK 0");
    primary.set_policy(|policy| policy.min_sync_replicas = 0);
    assert_eq!(primary.reply(carol), "granted 60000 0 1");
}

#[test]
fn server_that_becomes_a_replica_tells_nobody_and_its_grant_stays() {
    let mut primary = held();
    let bob = primary.held_back("ACQUIRE b bob 60000 REQID r1");
    let sent = std::mem::take(&mut primary.host.stream);
    let mut replica = Memory::default();
    replica.flags.is_replica = true;
    replica.clocks = primary.host.clocks;
    primary.host.flags.is_replica = true;
    events::role_changed(&mut primary.host, false);
    primary.run_due();
    assert_eq!(primary.reply(bob), "UNBLOCKED");
    primary.assert_owner("b", "bob");
    for sent in &sent {
        replica.receive(sent).expect("a change");
    }
    replica.flags.is_replica = false;
    events::role_changed(&mut replica, true);
    let mut promoted = Primary {
        host: replica,
        replies: Vec::new(),
    };
    promoted.set_policy(|policy| (policy.min_sync_replicas, policy.sync_timeout_ms) = (1, 1_000));
    assert_eq!(
        promoted.told("ACQUIRE c carol 60000"),
        "NOREPLICAS",
        "it has no replica yet"
    );
    promoted.set_replicas(&[0]);
    let again = promoted.held_back("ACQUIRE b bob 60000 REQID r1");
    promoted.acknowledge(&[promoted.host.offset]);
    assert!(
        promoted.reply(again).starts_with("granted"),
        "{}",
        promoted.reply(again)
    );
    assert!(promoted.host.flags().is_primary());
}
