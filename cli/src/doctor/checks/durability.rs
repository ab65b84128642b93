//! Checks of what survives a crash or restart.

use super::grace;
use crate::doctor::facts::Facts;
use crate::doctor::finding::{Finding, Level};

pub fn persistence(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "persistence";
    if !facts.has_config() {
        return None;
    }
    let aof = facts.is_enabled("appendonly");
    let loss = match (aof, facts.config.get("appendfsync")) {
        (true, "always") if facts.is_enabled("no-appendfsync-on-rewrite") => {
            return Some(Finding::warning(
                CHECK,
                "appendfsync is always, but no-appendfsync-on-rewrite is yes",
                "a crash during an AOF rewrite can lose acknowledged grants",
                "CONFIG SET no-appendfsync-on-rewrite no",
            ));
        }
        (true, "always") => {
            return Some(Finding::ok(
                CHECK,
                "a crash loses no acknowledged grant (appendfsync always)",
            ));
        }
        (true, fsync) => format!("a crash loses the most recent grants (appendfsync {fsync})"),
        (false, _) if facts.config.get("save").is_empty() => "a restart loses all locks".to_owned(),
        (false, _) => "a crash loses all locks granted since the last snapshot".to_owned(),
    };
    if facts.setting("dlock.startup-grace-ms")? != 0 {
        // A grace period that is too short has a finding of its own.
        let covered = || format!("{loss}; dlock.startup-grace-ms covers that");
        return grace::startup_grace(facts)
            .is_none()
            .then(|| Finding::ok(CHECK, covered()));
    }
    Some(Finding::new(
        if aof { Level::Warning } else { Level::Problem },
        CHECK,
        loss + ", and there is no startup grace period",
        "after a restart, locks may be granted to others while their holders still work",
        "set dlock.startup-grace-ms to the longest lease, or appendonly yes and appendfsync always",
    ))
}

pub fn disk(facts: &Facts) -> Option<Finding> {
    let failed =
        facts.info.get("aof_last_write_status") == "err" || facts.info.get("rdb_last_bgsave_status") == "err";
    failed.then(|| {
        Finding::problem(
            "disk",
            "the last write of the AOF or the last snapshot failed",
            "the server rejects all writes (MISCONF), or a restart loses locks",
            "see the log of the server: the disk may be full",
        )
    })
}
