//! Reads the facts about the servers. Changes nothing, not even the counters of the module.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{FromRedisValue, Value, cmd};

use super::facts::Facts;
use super::permissions::denied_commands;
use crate::exit::{Code, Failure};
use crate::scan::{self, ScanResult};
use crate::server::{Fields, Node, Target};

/// All primaries, each followed by its replicas.
pub fn all_servers(target: &Target) -> Result<Vec<Facts>, Failure> {
    let mut all = Vec::new();
    for found in target.discover_primaries()? {
        let mut primary = match found.node {
            Ok(primary) => primary,
            Err(failure) => {
                all.push(Facts::unreachable(found.name, failure.message));
                continue;
            }
        };
        let facts = facts_or_unreachable(&mut primary);
        let replicas = primary.discover_replicas(&facts.info);
        all.push(facts);
        all.extend(replicas.into_iter().map(|found| match found.node {
            Ok(mut replica) => facts_or_unreachable(&mut replica),
            Err(failure) => Facts::unreachable(found.name, failure.message),
        }));
    }
    Ok(all)
}

/// A server can fail at any time, for instance during a failover.
fn facts_or_unreachable(node: &mut Node) -> Facts {
    facts(node).unwrap_or_else(|failure| Facts::unreachable(node.name.clone(), failure.message))
}

fn facts(node: &mut Node) -> Result<Facts, Failure> {
    let mut facts = Facts {
        server: node.name.clone(),
        info: if_permitted(node.info(&["everything"]))?.unwrap_or_default(),
        config: if_permitted(config(node))?.unwrap_or_default(),
        ..Facts::default()
    };
    facts.clock_ahead_ms = facts.or_denied("TIME", clock_ahead_ms(node))?;
    facts.module_version = facts.or_denied("MODULE LIST", module_version(node))?.flatten();
    if facts.is_cluster() {
        let text = node.query::<String>(cmd("CLUSTER").arg("INFO"));
        let text = facts.or_denied("CLUSTER INFO", text)?;
        facts.cluster = Fields::parse(&text.unwrap_or_default());
        let text = node.query::<String>(cmd("CLUSTER").arg("NODES"));
        let text = facts.or_denied("CLUSTER NODES", text)?;
        facts.failed_nodes = failed_nodes(&text.unwrap_or_default());
    }
    if facts.has_module() {
        let denied = denied_commands(node);
        if denied.is_none() {
            facts.denied_queries.push("MULTI and DISCARD");
        }
        facts.denied_commands = denied.unwrap_or_default();
        // Without DLOCK.INFO no lock can be read, which is reported anyway.
        if !facts.denied_commands.contains(&"DLOCK.INFO") {
            let found = scan::all_locks(std::slice::from_mut(node), None);
            let found = facts.or_denied("SCAN", found)?.unwrap_or_default();
            facts.denied_locks = found.denied.len();
            facts.longest_lease = longest_lease(&found);
        }
    }
    Ok(facts)
}

impl Facts {
    /// As [`if_permitted`], and records the command if permission is denied.
    fn or_denied<T>(
        &mut self,
        command: &'static str,
        reply: Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let reply = if_permitted(reply)?;
        if reply.is_none() {
            self.denied_queries.push(command);
        }
        Ok(reply)
    }
}

/// `None` if the server rejects the command. A lost connection is a failure.
fn if_permitted<T>(reply: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(failure) if failure.code == Code::Unavailable => Err(failure),
        Err(_) => Ok(None),
    }
}

fn config(node: &mut Node) -> Result<Fields, Failure> {
    Ok(Fields(node.query(cmd("CONFIG").arg("GET").arg("*"))?))
}

/// How far the server's clock is certainly ahead: a slow reply says nothing about the clock.
fn clock_ahead_ms(node: &mut Node) -> Result<i64, Failure> {
    let now_ms = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis() as i64
    };
    let before = now_ms();
    let (seconds, us): (i64, i64) = node.query(&cmd("TIME"))?;
    let server_ms = seconds * 1000 + us / 1000;
    Ok(server_ms - server_ms.clamp(before, now_ms().max(before)))
}

fn module_version(node: &mut Node) -> Result<Option<u64>, Failure> {
    let modules: Vec<HashMap<String, Value>> = node.query(cmd("MODULE").arg("LIST"))?;
    let dlock = modules
        .iter()
        .find(|module| text(module.get("name")).as_deref() == Some("dlock"));
    let version = dlock.and_then(|module| module.get("ver"));
    Ok(version.and_then(|version| match version {
        Value::Int(version) => u64::try_from(*version).ok(),
        _ => None,
    }))
}

fn text(value: Option<&Value>) -> Option<String> {
    String::from_redis_value(value?.clone()).ok()
}

fn longest_lease(found: &ScanResult) -> Duration {
    let holders = found.locks.iter().flat_map(|lock| lock.holders());
    holders.map(|holder| holder.lease).max().unwrap_or_default()
}

/// Lines such as `07c3... 127.0.0.1:7001@17001,host master,fail - 0 ...`: the addresses of the failed nodes.
fn failed_nodes(cluster_nodes: &str) -> Vec<String> {
    let failed = cluster_nodes.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?, words.next()?);
        let is_failed = flags.split(',').any(|flag| matches!(flag, "fail" | "fail?"));
        let address = address.split('@').next()?;
        is_failed.then(|| address.to_owned())
    });
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_nodes_are_read_from_cluster_nodes() {
        let nodes = "\
a1 127.0.0.1:7401@17401 myself,master - 0 1 1 connected 0-5460
a2 127.0.0.1:7402@17402,host master,fail - 1 1 2 disconnected
a3 127.0.0.1:7403@17403 slave,fail? a1 1 1 1 connected
";
        assert_eq!(failed_nodes(nodes), ["127.0.0.1:7402", "127.0.0.1:7403"]);
    }
}
