//! Atomic slot migration: CLUSTER MIGRATESLOTS of Valkey 9. The other node gets a snapshot of the slots and all changes
//! after it, and then takes them over at once.

use dlock_testkit::{Client, Cluster, Waiter, pause, skip, wait_for};
use redis::Value;

/// Node 0 has the slot of the key, which is to go to node 1. Neither has replicas or a log.
struct Fixture {
    cluster: Cluster,
    source: Client,
    target: Client,
    key: String,
}

impl Fixture {
    /// `None` where the server has no atomic migration.
    fn start() -> Option<Self> {
        let cluster = Cluster::start(3);
        let mut source = cluster.client(0);
        if source.call("CLUSTER GETSLOTMIGRATIONS").is_err() {
            skip("the server has no CLUSTER MIGRATESLOTS");
            return None;
        }
        Some(Self {
            source,
            target: cluster.client(1),
            // Other locks of the slot have names that begin with this one.
            key: format!("{{{}}}", cluster.key_on(0, "door")),
            cluster,
        })
    }

    fn waiter(&self, owner: &str) -> Waiter {
        self.cluster.nodes[0].waiter(&format!("{} {owner} 60000 BLOCK 0", self.key))
    }

    fn begin(&mut self) {
        let slot: u16 = self.source.ask(&format!("CLUSTER KEYSLOT {}", self.key));
        let target = self.cluster.id(1);
        self.source.ok(&format!(
            "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {target}"
        ));
    }

    /// Migrates as far as the stream of changes, and no further until [`Fixture::finish`].
    fn begin_and_stream(&mut self) {
        self.source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
        self.begin();
        self.wait_for_state("waiting-to-pause");
    }

    fn finish(&mut self) {
        self.source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
        self.wait_for_state("success");
        let (key, target) = (&self.key, &mut self.target);
        wait_for("the slot at the target", || {
            target.call(&format!("EXISTS {key}")).is_ok()
        });
    }

    fn wait_for_state(&mut self, state: &str) {
        wait_for(state, || self.is_in_state(state));
    }

    fn is_in_state(&mut self, state: &str) -> bool {
        let jobs: Value = self.source.ask("CLUSTER GETSLOTMIGRATIONS");
        format!("{jobs:?}").contains(state)
    }
}

#[test]
fn atomic_migration_keeps_holders_and_raises_fences() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let (key, free) = (fixture.key.clone(), format!("{}-free", fixture.key));
    let fence = fixture
        .source
        .acquire(&format!("{key} alice 60000 REQID a"))
        .fence;
    fixture.source.acquire(&format!("{key} alice 60000 REQID b"));
    let last = fixture.source.acquire(&format!("{free} bob 60000")).fence;
    fixture.source.release(&format!("{free} bob"));
    fixture.begin();
    fixture.finish();
    fixture
        .source
        .assert_error("MOVED", &format!("DLOCK.OWNER {key}"));
    fixture.target.assert_sole_holder(&key, "alice", fence, 2);
    let holds = fixture
        .target
        .acquire(&format!("{key} alice 60000 REQID b"))
        .holds;
    assert_eq!(holds, 2);
    assert!(fixture.target.acquire(&format!("{free} carol 60000")).fence > last);
}

#[test]
fn changes_during_atomic_migration_reach_target() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let key = fixture.key.clone();
    let kept = format!("{key}-kept");
    fixture.source.acquire(&format!("{key} alice 60000"));
    let kept_fence = fixture.source.acquire(&format!("{kept} alice 30000")).fence;
    fixture.begin_and_stream();
    // A new lock, a release, a hand-over, an extension: neither a log nor a replica takes them.
    let new = format!("{key}-new");
    let new_fence = fixture.source.acquire(&format!("{new} bob 60000")).fence;
    let mut carol = fixture.waiter("carol");
    fixture.source.release(&format!("{key} alice"));
    let fence = carol.granted().fence;
    fixture.source.extend(&format!("{kept} alice 90000"));
    // Longer than the time between two polls of replicas.
    pause(1_500);
    let late = format!("{key}-late");
    fixture.source.acquire(&format!("{late} dave 60000"));
    fixture.source.acquire(&format!("{late} dave 60000"));
    assert_eq!(fixture.source.release(&format!("{late} dave")), 1);
    fixture.finish();
    fixture.target.assert_sole_holder(&key, "carol", fence, 1);
    fixture.target.assert_sole_holder(&new, "bob", new_fence, 1);
    fixture.target.assert_sole_holder(&kept, "alice", kept_fence, 1);
    assert!(fixture.target.extend(&format!("{kept} alice 1")) > 60_000);
    assert_eq!(fixture.target.release(&format!("{late} dave")), 0);
}

#[test]
fn importing_node_expires_no_lease() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let key = fixture.key.clone();
    fixture.source.acquire(&format!("{key} alice 500"));
    fixture.begin_and_stream();
    // The lease ends while the source cannot say whether it was extended before.
    fixture.cluster.nodes[0].stop();
    pause(1_500);
    assert_eq!(fixture.target.stat("dlock_locks"), 1);
    fixture.cluster.nodes[0].resume();
    fixture.finish();
    assert_eq!(fixture.target.owner(&key), None);
    assert_eq!(fixture.target.stat("dlock_expired"), 0);
}

#[test]
fn cancelled_atomic_migration_leaves_source_as_it_was() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let key = fixture.key.clone();
    let fence = fixture.source.acquire(&format!("{key} alice 60000")).fence;
    let mut bob = fixture.waiter("bob");
    fixture.begin_and_stream();
    fixture.source.ok("CLUSTER CANCELSLOTMIGRATIONS");
    fixture.source.assert_sole_holder(&key, "alice", fence, 1);
    let target = &mut fixture.target;
    wait_for("an empty target", || target.stat("dlock_locks") == 0);
    fixture.source.release(&format!("{key} alice"));
    assert!(bob.granted().fence > fence);
}

#[test]
fn importing_node_obeys_no_other_client() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let key = fixture.key.clone();
    fixture.source.acquire(&format!("{key} alice 60000"));
    fixture.begin_and_stream();
    let own = fixture.cluster.key_on(1, "gate");
    let error = fixture.target.error(&format!("DLOCK.APPLY {own} x"));
    assert!(error.starts_with("ERR "), "{error}");
    fixture.finish();
}

/// A key that node 0 owns, and a connection to node 1 that poses as node 0, which migrates the slot of the key.
fn pose_as_source(fixture: &Fixture) -> (String, Client) {
    let mut client = fixture.cluster.client(1);
    let key = fixture.key.clone();
    let slot: u16 = client.ask(&format!("CLUSTER KEYSLOT {key}"));
    let (source, name) = (fixture.cluster.id(0), "a".repeat(40));
    client.ok(&format!(
        "CLUSTER SYNCSLOTS ESTABLISH SOURCE {source} NAME {name} SLOTSRANGE {slot} {slot}"
    ));
    (key, client)
}

/// A change that makes alice the only holder.
fn change(fence: u64, lease_ms: u64) -> Vec<u8> {
    let mut change = b"\x01\x03\x05alice\x01".to_vec();
    for mut number in [fence, lease_ms, 0, 1, 0] {
        while number > 0x7f {
            change.push(0x80 | (number & 0x7f) as u8);
            number >>= 7;
        }
        change.push(number as u8);
    }
    change
}

#[test]
fn checkpoint_from_posed_migration_source_is_refused() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    for words in [
        ["DLOCK.SYNC", "9007199254740990", "5000"],
        ["DLOCK.SYNC", "1", "1000000000"],
    ] {
        let (_, mut posed) = pose_as_source(&fixture);
        let target = &mut fixture.target;
        let refused = target.stat("dlock_errors_err");
        posed.send_args(&words.map(str::as_bytes));
        wait_for("the refusal", || target.stat("dlock_errors_err") > refused);
        assert_eq!(target.stat("dlock_grace_left_ms"), 0);
        let gate = fixture.cluster.key_on(1, "gate");
        assert!(fixture.target.acquire(&format!("{gate} bob 60000")).fence < 1 << 52);
        fixture.target.release(&format!("{gate} bob"));
    }
}

#[test]
fn change_from_posed_migration_source_is_bounded_as_restore() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let gate = fixture.cluster.key_on(1, "gate");
    let known = fixture.target.acquire(&format!("{gate} bob 60000")).fence;
    // A fence two years ahead, a lease of eleven years.
    let two_years = 2 * 366 * 24 * 60 * 60 * 1000 * 2048;
    let eleven_years_ms = 11 * 366 * 24 * 60 * 60 * 1000;
    let mut refused = vec![
        change(known + two_years, 60_000),
        change((1 << 53) - 1, 60_000),
        change(known, eleven_years_ms),
        Vec::new(),
        b"x".to_vec(),
    ];
    let valid = change(known + 5, 60_000);
    refused.extend((1..valid.len()).map(|length| valid[..length].to_vec()));
    for change in refused {
        let (key, mut posed) = pose_as_source(&fixture);
        let target = &mut fixture.target;
        let (errors, fence) = (target.stat("dlock_errors_err"), target.stat("dlock_fence_known"));
        posed.send_args(&[b"DLOCK.APPLY", key.as_bytes(), &change]);
        wait_for("the refusal", || target.stat("dlock_errors_err") > errors);
        assert_eq!(target.stat("dlock_fence_known"), fence, "{change:?}");
        fixture.cluster.nodes[1].assert_alive();
    }
    let (key, mut posed) = pose_as_source(&fixture);
    posed.send_args(&[b"DLOCK.APPLY", key.as_bytes(), &valid]);
    let target = &mut fixture.target;
    wait_for("the change", || {
        target.stat("dlock_fence_known") >= (known + 5) as i64
    });
}

/// A checkpoint goes to no slot.
#[test]
fn checkpoint_of_source_does_not_break_atomic_migration() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let key = fixture.key.clone();
    let fence = fixture.source.acquire(&format!("{key} alice 60000")).fence;
    fixture.begin_and_stream();
    // A replica that comes online asks for one.
    let mut replica = fixture.cluster.add_replica(0);
    wait_for("a checkpoint", || {
        replica
            .info_section("commandstats")
            .contains_key("cmdstat_dlock.sync")
    });
    fixture.finish();
    fixture.target.assert_sole_holder(&key, "alice", fence, 1);
}
