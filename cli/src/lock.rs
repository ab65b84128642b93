//! DLOCK.INFO replies, and their JSON form.

use redis::{Cmd, cmd};
use redis_dlock_client::{HolderInfo, LockInfo, WaiterInfo};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::server::Node;
use crate::text::{to_hex, truncate_middle};

/// A lock and its name.
#[derive(Clone, Debug)]
pub struct NamedLock {
    pub name: Vec<u8>,
    /// `None` if the lock is free and has no waiters.
    pub info: Option<LockInfo>,
}

pub fn info_command(name: &[u8]) -> Cmd {
    cmd("DLOCK.INFO").arg(name).take()
}

impl NamedLock {
    pub fn read(node: &mut Node, name: &[u8]) -> Result<Self, Failure> {
        let info = node
            .query(&info_command(name))
            .map_err(|failure| failure.about(name))?;
        Ok(Self {
            name: name.to_vec(),
            info,
        })
    }

    pub fn holders(&self) -> &[HolderInfo] {
        self.info.as_ref().map_or(&[], |info| &info.holders)
    }

    pub fn waiters(&self) -> &[WaiterInfo] {
        self.info.as_ref().map_or(&[], |info| &info.waiters)
    }

    pub fn waiting(&self) -> u64 {
        self.info.as_ref().map_or(0, |info| info.waiting)
    }

    /// `mutex`, `shared`, or `limit 3`; empty if the lock has no holder.
    pub fn kind(&self) -> String {
        match &self.info {
            Some(info) if !info.holders.is_empty() => kind(info.limit),
            _ => String::new(),
        }
    }

    /// The first holder by this name, shortened to a width, and how many others there are: `alice +2`, or `-`.
    pub fn held_by(&self, name: fn(&[u8]) -> String, width: usize) -> String {
        let shortened = |holder: &HolderInfo| {
            let name = name(holder.owner.as_bytes());
            truncate_middle(&name, width).into_owned()
        };
        match self.holders() {
            [] => "-".to_owned(),
            [one] => shortened(one),
            [first, others @ ..] => format!("{} +{}", shortened(first), others.len()),
        }
    }

    pub fn json(&self) -> Value {
        let limit = self
            .info
            .as_ref()
            .filter(|info| !info.holders.is_empty())
            .map(|info| info.limit);
        let mut lock = json!({ "name": text(&self.name) });
        if std::str::from_utf8(&self.name).is_err() {
            lock["name_hex"] = to_hex(&self.name).into();
        }
        lock["limit"] = limit.flatten().into();
        lock["shared"] = limit.is_some_and(|limit| limit.is_none()).into();
        lock["holders"] = self.holders().iter().map(holder).collect();
        lock["waiting"] = self.waiting().into();
        lock["waiters"] = self.waiters().iter().map(waiter).collect();
        lock
    }
}

pub fn kind(limit: Option<u32>) -> String {
    match limit {
        None => "shared".to_owned(),
        Some(1) => "mutex".to_owned(),
        Some(limit) => format!("limit {limit}"),
    }
}

fn holder(holder: &HolderInfo) -> Value {
    json!({
        "owner": text(holder.owner.as_bytes()),
        "fence": holder.fence,
        "holds": holder.holds,
        "lease_ms": holder.lease.as_millis() as u64,
        "held_ms": holder.held.as_millis() as u64,
    })
}

fn waiter(waiter: &WaiterInfo) -> Value {
    json!({
        "owner": text(waiter.owner.as_bytes()),
        "limit": waiter.limit,
        "shared": waiter.limit.is_none(),
        "waited_ms": waiter.waited.as_millis() as u64,
        "timeout_ms": waiter.timeout.map(|timeout| timeout.as_millis() as u64),
        "queued": waiter.is_queued,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
