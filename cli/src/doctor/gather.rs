//! Asks the servers. Changes nothing but what they count of refused requests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, FromRedisValue, RedisError, Value, cmd};
use redis_dlock_client::Owner;

use super::facts::Facts;
use crate::exit::{Code, Failure};
use crate::scan::{self, Found};
use crate::server::{Fields, Node, Target, is_forbidden};

/// All primaries, each followed by its replicas.
pub fn all(target: &Target) -> Result<Vec<Facts>, Failure> {
    let mut all = Vec::new();
    for found in target.each_primary()? {
        let mut primary = match found.node {
            Ok(primary) => primary,
            Err(failure) => {
                all.push(unreachable(found.name, failure));
                continue;
            }
        };
        let facts = facts(&mut primary)?;
        let replicas = replicas(&facts.info);
        all.push(facts);
        for (host, port) in replicas {
            let found = target.beside(&primary, host, port);
            all.push(match found.node {
                Ok(mut replica) => self::facts(&mut replica)?,
                Err(failure) => unreachable(found.name, failure),
            });
        }
    }
    Ok(all)
}

fn unreachable(server: String, failure: Failure) -> Facts {
    Facts {
        server,
        out_of_reach: Some(failure.message),
        ..Facts::default()
    }
}

fn facts(node: &mut Node) -> Result<Facts, Failure> {
    let mut facts = Facts {
        server: node.name.clone(),
        info: permitted(node.info("everything"))?.unwrap_or_default(),
        settings: permitted(settings(node))?.unwrap_or_default(),
        ..Facts::default()
    };
    facts.clock_ahead_ms = facts.or_unasked("TIME", clock_ahead_ms(node))?;
    facts.module_version = facts.or_unasked("MODULE LIST", module_version(node))?.flatten();
    if facts.is_cluster() {
        let text = node.query::<String>(cmd("CLUSTER").arg("INFO"));
        let text = facts.or_unasked("CLUSTER INFO", text)?;
        facts.cluster = Fields::parse(&text.unwrap_or_default());
    }
    if facts.has_module() {
        facts.forbidden = forbidden(node);
        // Without this right no lock can be looked at, which is told anyway.
        if !facts.forbidden.contains(&"DLOCK.INFO") {
            let found = scan::all(std::slice::from_mut(node), None);
            let found = facts.or_unasked("SCAN", found)?.unwrap_or_default();
            if !found.hidden.is_empty() {
                facts.unasked.push("DLOCK.INFO for all locks");
            }
            facts.longest_lease = longest_lease(&found);
        }
    }
    Ok(facts)
}

impl Facts {
    /// As [`permitted`], and notes the command that the user may not use.
    fn or_unasked<T>(
        &mut self,
        command: &'static str,
        answer: Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let answer = permitted(answer)?;
        if answer.is_none() {
            self.unasked.push(command);
        }
        Ok(answer)
    }
}

/// What a user may not ask for is not known. A lost connection is a failure.
fn permitted<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.code == Code::Unavailable => Err(failure),
        Err(_) => Ok(None),
    }
}

fn settings(node: &mut Node) -> Result<Fields, Failure> {
    Ok(Fields(node.query(cmd("CONFIG").arg("GET").arg("*"))?))
}

fn clock_ahead_ms(node: &mut Node) -> Result<i64, Failure> {
    let here = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis() as i64
    };
    let before = here();
    let (seconds, us): (i64, i64) = node.query(&cmd("TIME"))?;
    Ok(seconds * 1000 + us / 1000 - (before + here()) / 2)
}

fn module_version(node: &mut Node) -> Result<Option<u64>, Failure> {
    let modules: Vec<std::collections::HashMap<String, Value>> = node.query(cmd("MODULE").arg("LIST"))?;
    let dlock = modules
        .iter()
        .find(|module| text(module.get("name")).as_deref() == Some("dlock"));
    Ok(dlock
        .and_then(|module| module.get("ver"))
        .and_then(|version| match version {
            Value::Int(version) => u64::try_from(*version).ok(),
            _ => None,
        }))
}

fn text(value: Option<&Value>) -> Option<String> {
    String::from_redis_value(value?.clone()).ok()
}

fn longest_lease(found: &Found) -> Duration {
    let holders = found.locks.iter().flat_map(|lock| lock.holders());
    holders.map(|holder| holder.lease).max().unwrap_or_default()
}

/// The commands of ours that the user may not use. Asked by requests that are refused for what is in them.
fn forbidden(node: &mut Node) -> Vec<&'static str> {
    let nobody = Owner::unique();
    // A name that nobody uses, of a lock that is never made.
    let name = [b"dlock-doctor:", nobody.as_bytes()].concat();
    let request = |command: &str, args: &[&str]| {
        let mut request = cmd(command);
        request.arg(&name);
        args.iter().for_each(|&arg| _ = request.arg(arg));
        request
    };
    let requests: [(&str, Cmd); 5] = [
        ("DLOCK.ACQUIRE", request("DLOCK.ACQUIRE", &["doctor", "0"])),
        ("DLOCK.RELEASE", request("DLOCK.RELEASE", &["doctor"])),
        ("DLOCK.EXTEND", request("DLOCK.EXTEND", &["doctor", "0"])),
        ("DLOCK.OWNER", request("DLOCK.OWNER", &[])),
        ("DLOCK.INFO", request("DLOCK.INFO", &[])),
    ];
    let forbidden = requests.into_iter().filter(|(_, request)| {
        let answer: Result<Value, RedisError> = request.query(&mut node.connection);
        answer.is_err_and(|error| is_forbidden(&error))
    });
    forbidden.map(|(command, _)| command).collect()
}

/// `slave0:ip=127.0.0.1,port=7001,state=online,...`
fn replicas(info: &Fields) -> Vec<(String, u16)> {
    let lines = info.0.iter().filter(|(name, _)| {
        let number = name.strip_prefix("slave").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    lines
        .filter_map(|(_, line)| {
            let field = |name| line.split(',').find_map(|field| field.strip_prefix(name));
            Some((field("ip=")?.to_owned(), field("port=")?.parse().ok()?))
        })
        .collect()
}
