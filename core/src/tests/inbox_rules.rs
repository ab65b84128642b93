//! What the transcripts of `tests/rules` cannot show of inboxes: sizes, what comes between two passes of the server's loop,
//! and what is not visible from outside.

use crate::effects::{Answer, Effects};
use crate::inbox::{GrantsReply, Received};
use crate::lock::Lock;
use crate::names::{Call, LockNameRef};
use crate::testing::{self, IN_2025_UNIX_MS, ORIGIN, Request, Server};
use crate::wire::{Acquired, Caller, Error, Grants};

/// Who sends all requests, unless the test says otherwise.
const SELF: Caller<'_> = Caller { db: 0, user: b"" };

/// A server where alice holds `a` and `b`, with the inbox `inbox`, and the cursor of its first reply.
fn held() -> (Server, u64) {
    let mut server = Server::with(&["a", "b"]);
    server.granted("ACQUIRE a alice 60000 REQID r0");
    server.granted("ACQUIRE b alice 60000 REQID r0");
    let cursor = server.read("inbox 0 TTL 1000").cursor;
    (server, cursor)
}

/// As [`held`]. Bob and carol wait for `a`, in this order.
fn queued() -> (Server, u64) {
    let (mut server, cursor) = held();
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    server.queued("ACQUIRE a carol 60000 QUEUE inbox 0 REQID r2");
    (server, cursor)
}

impl Server {
    /// Sends a request that is queued for an inbox.
    #[track_caller]
    fn queued(&mut self, command: &str) {
        let reply = self.call(command);
        assert!(
            matches!(reply, Ok(testing::Answer::Queued(_))),
            "{reply:?} to {command}"
        );
    }

    #[track_caller]
    fn released(&mut self, command: &str) {
        assert!(self.call(command).is_ok(), "{command}");
    }

    /// Sends a GRANTS with these arguments. Returns its reply.
    #[track_caller]
    fn read(&mut self, args: &str) -> GrantsReply {
        match self.read_from(SELF, args) {
            Ok(Received::Replied { reply, former: None }) => reply,
            other => panic!("{other:?} to {args}"),
        }
    }

    /// Sends a GRANTS that waits.
    #[track_caller]
    fn read_waits(&mut self, args: &str) -> Call {
        match self.read_from(SELF, args) {
            Ok(Received::Waits { call, former: None }) => call,
            other => panic!("{other:?} to {args}"),
        }
    }

    fn read_from(&mut self, caller: Caller<'_>, args: &str) -> Result<Received, Error> {
        let (inbox, options) = args.split_once(' ').expect("a cursor");
        let request = Grants::parse(inbox.as_bytes(), options.split(' ').map(str::as_bytes))?;
        self.grants(&request, caller)
    }

    /// Time passes until `inbox` would have ended without a call.
    fn outlast_ttl(&mut self) {
        self.pass(1_000_000);
        for _ in 0..5 {
            self.run_due();
            self.pass(10_000);
        }
    }

    /// The owners of whose grants the next call is told.
    #[track_caller]
    fn next_grants(&mut self, cursor: u64) -> Vec<String> {
        let reply = self.read(&format!("inbox {cursor}"));
        let granted = reply.answers.iter().map(|answered| {
            assert!(matches!(answered.answer, Answer::Granted(_)), "{answered:?}");
            String::from_utf8_lossy(&answered.owner).into_owned()
        });
        granted.collect()
    }

    fn has_inbox(&self) -> bool {
        self.state().inboxes.find(b"inbox").is_some()
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of transitions")]
fn reply_carries_1000_answers_and_the_next_one_the_rest() {
    let (mut server, cursor) = held();
    for n in 0..1_001 {
        server.queued(&format!(
            "ACQUIRE a reader{n} 60000 SHARED QUEUE inbox 0 REQID r{n}"
        ));
    }
    server.released("RELEASE a alice");
    server.process_due();
    let first = server.read(&format!("inbox {cursor}"));
    assert_eq!(first.answers.len(), 1_000);
    assert_eq!(server.next_grants(first.cursor), ["reader1000"]);
}

/// Each answer repeats the key.
#[test]
fn reply_of_long_names_is_bounded_in_bytes_but_has_one_answer() {
    const KIB: usize = 1 << 10;
    for (key_bytes, expected) in [(100 * KIB, [3, 3, 1]), (KIB * KIB, [1, 1, 1])] {
        let key = "k".repeat(key_bytes);
        let mut server = Server::with(&[&key]);
        server.granted(&format!("ACQUIRE {key} alice 60000 REQID r0"));
        let mut cursor = server.read("inbox 0").cursor;
        for n in 0..expected.iter().sum::<usize>() {
            server.queued(&format!(
                "ACQUIRE {key} bob{n} 60000 SHARED QUEUE inbox 0 REQID r{n}"
            ));
        }
        server.released(&format!("RELEASE {key} alice"));
        for answers in expected {
            let reply = server.read(&format!("inbox {cursor}"));
            cursor = reply.cursor;
            assert_eq!(reply.answers.len(), answers);
        }
    }
}

#[test]
fn inbox_is_named_and_read_by_no_other_user_or_database() {
    let (mut server, cursor) = held();
    for caller in [Caller { user: b"eve", ..SELF }, Caller { db: 1, ..SELF }] {
        let received = server.read_from(caller, &format!("inbox {cursor}"));
        assert_eq!(received.err(), Some(Error::ForeignInbox));
    }
    let (acquired, _) = acquire_a(&mut server, b"eve", "bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(acquired, Err(Error::ForeignInbox));
}

const A: LockNameRef<'_> = LockNameRef { db: 0, key: b"a" };

/// An ACQUIRE of `a` by this user, whose effects are not carried out.
fn acquire_a(server: &mut Server, user: &[u8], args: &str) -> (Result<Acquired, Error>, Effects) {
    let text = format!("ACQUIRE {args}");
    let Request::Acquire(request) = Request::parse(&text) else {
        panic!("{text}");
    };
    let (clocks, mut effects) = (server.host.clocks, Effects::default());
    let (inputs, mut lock) = (clocks.inputs(), server.lock_at(0).clone());
    let mut transition = server.state_mut().begin(&inputs, A, &mut lock, &mut effects);
    (transition.acquire(&request, user), effects)
}

/// The key of the lock is gone, and the server does not take the new one, with bob's grant.
#[test]
fn request_queued_for_a_lock_that_is_not_stored_waits_no_more() {
    for wait in ["QUEUE inbox 0", "BLOCK 0"] {
        let (mut server, _) = held();
        server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
        server.replace(0, Lock::default());
        let args = format!("carol 60000 {wait} REQID r2");
        let (reply, mut effects) = acquire_a(&mut server, SELF.user, &args);
        assert!(matches!(reply, Ok(Acquired::Queued(_))), "{reply:?}");
        server.state_mut().undo_queued(A, &mut effects);
        server.state_mut().deliver(&mut effects);
        // The answer is bob's.
        let inboxes = &server.state().inboxes;
        let counts = (inboxes.waiters(), inboxes.answers(), inboxes.len());
        assert_eq!((effects.parked, counts), (None, (0, 1, 1)), "{wait}");
        assert_eq!(server.state().wait_table.waiters(), 0);
    }
}

#[test]
fn full_server_takes_a_repeated_request() {
    let (mut server, _) = queued();
    server.set_policy(|policy| policy.max_waiters = 2);
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
}

#[test]
fn inbox_outlives_its_ttl_by_four_passes_of_the_loop() {
    let (mut server, _) = held();
    server.pass(999_999);
    server.run_due();
    server.pass(1);
    for _ in 0..4 {
        server.run_due();
        assert!(server.has_inbox());
        server.pass(10_000);
    }
    server.run_due();
    assert!(!server.has_inbox());
}

#[test]
fn call_in_the_last_pass_keeps_the_inbox() {
    let (mut server, cursor) = held();
    server.pass(1_000_000);
    for _ in 0..4 {
        server.run_due();
        server.pass(10_000);
    }
    server.read(&format!("inbox {cursor}"));
    server.run_due();
    assert!(server.has_inbox());
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
    assert!(server.has_inbox(), "in the pause");
    look(&mut server, false);
    server.run_due();
    assert!(server.has_inbox(), "after it");
    server.outlast_ttl();
    assert!(!server.has_inbox());
}

/// Its client was killed before the reply was written. The answer stays for the next call, which does not come.
#[test]
fn grant_for_a_reader_that_is_gone_is_rolled_back_with_its_inbox() {
    let (mut server, cursor) = queued();
    let call = server.read_waits(&format!("inbox {cursor} BLOCK 2000"));
    server.released("RELEASE a alice");
    assert_eq!(server.woken, [call]);
    server.lose_reader(call);
    assert_eq!(server.state().inboxes.answers(), 1);
    server.outlast_ttl();
    assert!(server.lock("a").is_free());
}

/// The inbox has ended, and its waiters have not left yet.
#[test]
fn grant_to_a_waiter_of_an_ended_inbox_is_rolled_back() {
    let (mut server, cursor) = queued();
    let dave = server.waits("ACQUIRE a dave 60000 BLOCK 0");
    server.read(&format!("inbox {cursor} TTL 0"));
    server.released("RELEASE a alice");
    assert_eq!(server.owners("a"), ["bob"]);
    server.run_due();
    assert!(server.has_been_granted(dave));
}

#[test]
fn request_repeated_while_its_ended_inbox_is_cleared_keeps_its_place_in_the_new_one() {
    let (mut server, cursor) = queued();
    server.read(&format!("inbox {cursor} TTL 0"));
    let new = server.read("inbox 0").cursor;
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    server.run_due();
    server.released("RELEASE a alice");
    assert_eq!(server.next_grants(new), ["bob"]);
}

/// One waiter leaves in a step: between two steps the module looks at its clock. The last leave first: a queue becomes due
/// once, not with each of its waiters.
#[test]
fn queue_of_a_cleared_inbox_is_due_when_the_first_waiter_has_left() {
    let (mut server, cursor) = queued();
    server.waits("ACQUIRE a dave 60000 BLOCK 0");
    server.read(&format!("inbox {cursor} TTL 0"));
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
    let carried = server.read(&format!("inbox {cursor}")).answers.len();
    assert!(carried < WAITERS, "{carried}");
    server.outlast_ttl();
    assert_eq!(server.owners("a").len(), carried);
}

#[test]
fn cursors_of_server_that_restarts_with_its_clock_set_back_are_larger() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice REQID r0");
    let before = server.read(&format!("inbox {cursor}")).cursor;
    let mut restarted = Server::load(&server.save(), server.now(), ORIGIN);
    restarted.start(0);
    restarted.host.clocks.unix_ms = IN_2025_UNIX_MS - 3_600_000;
    let after = restarted.read("inbox 0").cursor;
    assert!(after > before, "{after} after {before}");
}
