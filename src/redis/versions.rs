//! What differs between the supported servers.

use std::ffi::c_int;

/// Versions as the module API counts them, `0x00MMmmpp`. Redict and Valkey 8 count on from Redis 7.2.
const REDIS_7_2: c_int = 0x0007_0200;
const REDIS_7_3: c_int = 0x0007_0300;
const REDIS_8_4: c_int = 0x0008_0400;

/// An option of Valkey 9 and later: without it CLUSTER MIGRATESLOTS is refused. (`HANDLE_FORKLESS` stays off as long as
/// the module relies on the event of a fork.)
pub const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// A flag of Valkey 9 and later: the client of the call is another node, which migrates slots to this one. Redis has
/// another flag of this number.
pub const SLOT_IMPORT_CLIENT: u32 = 1 << 25;

/// An event of Valkey 9 and later. Redis has another event of this number:
/// `REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM`.
pub const ATOMIC_SLOT_MIGRATION: u64 = 19;

/// Whether the server migrates slots with CLUSTER MIGRATION and then trims them. Valkey says that it is Redis 7.2.
pub fn trims_slots(version: c_int) -> bool {
    version >= REDIS_8_4
}

/// Redis and Valkey 7.2 abort when CLIENT UNBLOCK TIMEOUT meets an answer, if the module has a callback for it.
pub fn aborts_at_unblock(version: c_int) -> bool {
    (REDIS_7_2..REDIS_7_3).contains(&version)
}

/// By `valkey_version` in the server's INFO.
pub fn is_valkey_9(version: Option<&str>) -> bool {
    let major = version.and_then(|version| version.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major >= 9)
}
