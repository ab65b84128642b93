//! Checks of what survives a crash or restart.

use super::grace;
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;

pub fn persistence(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "persistence";
    if !facts.has_config() {
        return None;
    }
    let aof = facts.is_enabled("appendonly");
    let loss = match (aof, facts.config.get("appendfsync")) {
        (true, "always") if facts.is_enabled("no-appendfsync-on-rewrite") => {
            let message = "appendfsync is always, but no-appendfsync-on-rewrite is yes";
            return Some(Finding::bad("persistence: rewrite", message));
        }
        (true, "always") => {
            let message = "a crash loses no acknowledged grant (appendfsync always)";
            return Some(Finding::ok(CHECK, message));
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
    let message = loss + ", and there is no startup grace period";
    Some(match aof {
        true => Finding::bad("persistence: fsync", message),
        false => Finding::bad("persistence: none", message),
    })
}

pub fn disk(facts: &Facts) -> Option<Finding> {
    let statuses = ["aof_last_write_status", "rdb_last_bgsave_status"];
    let has_failed = statuses.iter().any(|status| facts.info.get(status) == "err");
    has_failed.then(|| Finding::bad("disk", "the last write of the AOF or the last snapshot failed"))
}
