//! Finds locks with SCAN, which does not block the servers.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Pipeline, cmd};
use redis_dlock_client::LockInfo;

use crate::exit::Failure;
use crate::lock::{NamedLock, info_command};
use crate::server::{Node, is_key_denied};

/// Keys per SCAN call: takes the server less than a millisecond.
const BATCH_KEYS: u64 = 1000;

/// An iteration over the keys of one server.
pub struct KeyspaceScan {
    pattern: Option<Vec<u8>>,
    cursor: u64,
}

impl KeyspaceScan {
    pub fn new(pattern: Option<&[u8]>) -> Self {
        Self {
            pattern: pattern.map(<[u8]>::to_vec),
            cursor: 0,
        }
    }

    /// The locks among the next keys.
    pub fn next_batch(&mut self, node: &mut Node) -> Result<Vec<Vec<u8>>, Failure> {
        let mut command = cmd("SCAN");
        command
            .arg(self.cursor)
            .arg("TYPE")
            .arg("dist-lock")
            .arg("COUNT")
            .arg(BATCH_KEYS);
        if let Some(pattern) = &self.pattern {
            command.arg("MATCH").arg(pattern);
        }
        let (cursor, names): (u64, Vec<Vec<u8>>) = node.query(&command)?;
        self.cursor = cursor;
        Ok(names)
    }

    pub fn is_done(&self) -> bool {
        self.cursor == 0
    }
}

/// The locks found by a scan.
#[derive(Default)]
pub struct ScanResult {
    pub locks: Vec<NamedLock>,
    /// Names of locks that the user has no permission to read.
    pub denied: Vec<Vec<u8>>,
}

/// Reads these locks. Keys that no longer hold a lock are skipped.
pub fn fetch_infos(node: &mut Node, names: Vec<Vec<u8>>) -> Result<ScanResult, Failure> {
    let mut found = ScanResult::default();
    if names.is_empty() {
        return Ok(found);
    }
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    for name in &names {
        pipeline.add_command(info_command(name));
    }
    let infos: Vec<redis::RedisResult<Option<LockInfo>>> = pipeline.query(&mut node.connection)?;
    for (name, info) in names.into_iter().zip(infos) {
        match info {
            Ok(info) => found.locks.push(NamedLock { name, info }),
            // No longer a lock, or its slot has moved to another node.
            Err(error) if matches!(error.code(), Some("WRONGTYPE" | "MOVED" | "ASK")) => {}
            Err(error) if is_key_denied(&error) => found.denied.push(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// All locks that match the pattern and have a holder or a waiter, sorted by name.
pub fn all_locks(nodes: &mut [Node], pattern: Option<&[u8]>) -> Result<ScanResult, Failure> {
    // SCAN can return a key more than once.
    let (mut found, mut denied) = (BTreeMap::new(), BTreeSet::new());
    for node in nodes {
        node.require_module()?;
        let mut scan = KeyspaceScan::new(pattern);
        loop {
            let names = scan.next_batch(node)?;
            let here = fetch_infos(node, names)?;
            denied.extend(here.denied);
            found.extend(
                here.locks
                    .into_iter()
                    .filter(|lock| lock.info.is_some())
                    .map(|lock| (lock.name.clone(), lock)),
            );
            if scan.is_done() {
                break;
            }
        }
    }
    Ok(ScanResult {
        locks: found.into_values().collect(),
        denied: denied.into_iter().collect(),
    })
}
