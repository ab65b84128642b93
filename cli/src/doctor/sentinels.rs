//! Checks the Sentinels of the URL, and what they know about the servers.

use std::collections::BTreeMap;

use redis::cmd;

use super::finding::{Finding, Report};
use crate::exit::Failure;
use crate::server::{Node, Target};

/// With fewer Sentinels, the failure of one prevents failovers.
const MIN_SENTINELS: usize = 3;

/// Fields of a server or Sentinel in a reply of SENTINEL.
type Instance = BTreeMap<String, String>;

/// The findings, and after which silence the first of them takes the primary for down. Empty unless the URL names
/// Sentinels.
pub fn check(target: &Target) -> (Vec<Report>, Option<i64>) {
    let Some(primary) = target.sentinel_primary() else {
        return (Vec::new(), None);
    };
    let (mut reports, mut shortest) = (Vec::new(), None::<i64>);
    for found in target.discover_sentinels() {
        let checked = found.node.and_then(|mut sentinel| {
            let findings = check_sentinel(&mut sentinel, primary)?;
            Ok((findings, down_after_ms(&mut sentinel, primary)))
        });
        let (findings, down_after_ms) = checked.unwrap_or_else(|failure| {
            let unreachable = Finding::bad("reachability: sentinel", failure.message);
            (vec![unreachable], None)
        });
        shortest = shortest.into_iter().chain(down_after_ms).min();
        reports.push(Report {
            title: format!("{} (Sentinel)", found.name),
            server: found.name,
            findings,
        });
    }
    (reports, shortest)
}

fn check_sentinel(sentinel: &mut Node, primary: &str) -> Result<Vec<Finding>, Failure> {
    let mut query = |subcommand: &str| -> Result<Vec<Instance>, Failure> {
        sentinel.query(cmd("SENTINEL").arg(subcommand).arg(primary))
    };
    let sentinels = query("SENTINELS")?;
    let replicas = query("REPLICAS")?;
    let quorum = cmd("SENTINEL")
        .arg("CKQUORUM")
        .arg(primary)
        .query::<String>(&mut sentinel.connection);
    let mut findings = vec![
        quorum_finding(quorum.err().map(|error| error.to_string())),
        sentinels_finding(&sentinels),
    ];
    findings.extend(replicas_finding(&replicas));
    Ok(findings)
}

fn down_after_ms(sentinel: &mut Node, primary: &str) -> Option<i64> {
    let primary: Instance = sentinel.query(cmd("SENTINEL").arg("MASTER").arg(primary)).ok()?;
    primary.get("down-after-milliseconds")?.parse().ok()
}

fn quorum_finding(error: Option<String>) -> Finding {
    match error {
        None => Finding::ok("quorum", "the Sentinels can start and authorize a failover"),
        Some(error) => Finding::bad("quorum: sentinel", format!("no failover is possible: {error}")),
    }
}

fn sentinels_finding(others: &[Instance]) -> Finding {
    let down: Vec<String> = others
        .iter()
        .filter(|other| is_down(other))
        .map(address)
        .collect();
    let count = others.len() + 1;
    if !down.is_empty() {
        let message = format!("{} of {count} down: {}", down.len(), down.join(", "));
        return Finding::bad("sentinels: down", message);
    }
    match count {
        ..MIN_SENTINELS => Finding::bad("sentinels: few", format!("only {count}")),
        _ => Finding::ok("sentinels", format!("{count}, all up")),
    }
}

fn replicas_finding(replicas: &[Instance]) -> Option<Finding> {
    let is_missing = |replica: &&Instance| is_down(replica) || has_no_link(replica);
    let missing: Vec<String> = replicas.iter().filter(is_missing).map(address).collect();
    let (down, count, names) = (missing.len(), replicas.len(), missing.join(", "));
    let message = || format!("{down} of {count} down or not connected to the primary: {names}");
    (down > 0).then(|| Finding::bad("replicas known to Sentinel", message()))
}

fn is_down(instance: &Instance) -> bool {
    let flags = instance.get("flags").map_or("", String::as_str);
    flags
        .split(',')
        .any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"))
}

/// Whether a replica is not connected to its primary, or is an old primary that has yet to become one.
fn has_no_link(replica: &Instance) -> bool {
    let status = replica.get("master-link-status");
    status.is_some_and(|status| status != "ok")
}

fn address(instance: &Instance) -> String {
    let field = |name| instance.get(name).map_or("?", String::as_str);
    format!("{}:{}", field("ip"), field("port"))
}
