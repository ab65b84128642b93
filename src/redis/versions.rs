//! What differs between the supported servers.

use std::ffi::c_int;

/// Versions as the module API counts them, `0x00MMmmpp`. Redict and Valkey 8 count on from Redis 7.2.
const REDIS_7_2: c_int = 0x0007_0200;
const REDIS_7_3: c_int = 0x0007_0300;
const REDIS_8_4: c_int = 0x0008_0400;

/// An option of Valkey 9.0 and later: without it CLUSTER MIGRATESLOTS is refused.
pub const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// An option of Valkey 9.2 and later: without it there are no snapshots without a fork. It promises that
/// [`DataType::save`](crate::redis::DataType::save) may run on another thread, and that a key that is being saved need not
/// open for writing. Redis may have another option of this number.
pub const HANDLE_FORKLESS: u32 = 1 << 6;

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

/// Major and minor version of a Valkey, by `valkey_version` in the server's INFO.
pub fn valkey_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_version_is_ordered_by_major_then_minor() {
        assert_eq!(valkey_version("9.2.0-rc2"), Some((9, 2)));
        assert!(valkey_version("8.10.1") < Some((9, 0)) && valkey_version("9.10.0") > Some((9, 2)));
        assert_eq!(valkey_version("unstable"), None);
    }
}
