//! Whether a server could start without the module on its files.

use std::time::Duration;

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::duration;

/// The checks of `dlock doctor --can-remove`. One finding that is ok: the module can be removed.
pub fn can_remove(facts: &Facts) -> Vec<Finding> {
    let checks = [keep_fence, locks, grace, aof, rdb];
    let obstacles: Vec<Finding> = checks.iter().filter_map(|check| check(facts)).collect();
    if obstacles.is_empty() {
        let done = "the module can be removed: delete loadmodule, the dlock.* settings and rights to its commands from \
                    the configuration, then restart the server";
        return vec![Finding::ok("removal", done)];
    }
    obstacles
}

fn keep_fence(facts: &Facts) -> Option<Finding> {
    (facts.config.get("dlock.keep-fence") != "no").then(|| {
        Finding::problem(
            "keep-fence",
            "dlock.keep-fence is not no",
            "the RDB or the append-only file holds the fence counter, and only the module can load it",
            "CONFIG SET dlock.keep-fence no, and the same in redis.conf",
        )
    })
}

fn locks(facts: &Facts) -> Option<Finding> {
    let locks = facts.info.number("dlock_locks")? + facts.info.number("dlock_untracked_locks")?;
    (locks > 0).then(|| {
        Finding::problem(
            "locks",
            format!("locks are stored: {locks}"),
            "only the module can load them",
            "stop the clients and wait until the leases have expired, or break the locks: dlock ls, dlock break",
        )
    })
}

fn grace(facts: &Facts) -> Option<Finding> {
    let left_ms = facts.info.number("dlock_grace_left_ms").filter(|ms| *ms > 0)?;
    let left = duration::format(Duration::from_millis(left_ms));
    Some(Finding::problem(
        "grace",
        format!("a grace period runs for {left} more"),
        "the append-only file records it",
        "wait until it is over",
    ))
}

fn aof(facts: &Facts) -> Option<Finding> {
    (facts.is_enabled("appendonly") && facts.info.number("dlock_aof_clean") != Some(1)).then(|| {
        Finding::problem(
            "append-only file",
            "it holds changes of locks",
            "only the module can load them",
            "once nothing else is reported: BGREWRITEAOF, and wait until INFO says aof_rewrite_in_progress:0",
        )
    })
}

/// A server with an append-only file does not load its RDB.
fn rdb(facts: &Facts) -> Option<Finding> {
    let clean_since = facts.info.number("dlock_clean_since").unwrap_or(0);
    let is_clean = clean_since > 0 && facts.info.number("rdb_last_save_time") > Some(clean_since);
    (!facts.is_enabled("appendonly") && !is_clean).then(|| {
        Finding::problem(
            "RDB",
            "it may hold locks or the fence counter",
            "only the module can load them",
            "once nothing else is reported: wait 2 seconds, then SAVE",
        )
    })
}
