//! How a lock is asked for.

use std::time::Duration;

use dlock_conformance::key;
use redis_dlock_client::{Lock, Locks};
use serde_json::Value;

/// `None`: the types of Rust do not have a value in it.
pub fn lock(locks: &Locks, command: &Value) -> Option<Lock> {
    if command["options"].is_object() {
        return None;
    }
    let mut lock = locks.lock(key_of(command)?);
    if let Some(lease) = given(&command["lease_ms"]) {
        lock = lock.lease(time(lease)?);
    }
    if let Some(timeout) = given(&command["timeout_ms"]) {
        lock = lock.timeout(time(timeout)?);
    }
    if let Some(max_hold) = given(&command["max_hold_ms"]) {
        lock = lock.max_hold(time(max_hold)?);
    }
    if let Some(limit) = given(&command["limit"]) {
        lock = lock.limit(u32::try_from(limit.as_u64()?).ok()?);
    }
    if command["shared"] == true {
        lock = lock.shared();
    }
    if let Some(owner) = command["owner"].as_str() {
        lock = lock.owner(owner);
    }
    Some(lock)
}

fn key_of(command: &Value) -> Option<Vec<u8>> {
    match command["key_hex"].as_str() {
        Some(hex) => Some(key::bytes(hex)),
        None => Some(command["key"].as_str()?.into()),
    }
}

fn given(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| !value.is_null())
}

/// A number of milliseconds.
pub fn time(value: &Value) -> Option<Duration> {
    match value.as_u64() {
        Some(ms) => Some(Duration::from_millis(ms)),
        None => Duration::try_from_secs_f64(value.as_f64()? / 1000.0).ok(),
    }
}
