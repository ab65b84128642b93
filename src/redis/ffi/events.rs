//! Events of the server.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;

use dlock_core::cluster::slots::SlotSet;
use redis_module::raw;

use crate::redis::ffi::api::{api, server_version};
use crate::redis::ffi::ctx::{Ctx, imports_slots};
use crate::redis::ffi::gil::Gil;
use crate::redis::versions::{ATOMIC_SLOT_MIGRATION, trims_slots};

/// What the module does at each event.
pub trait Events {
    /// `hz` times a second.
    fn cron(ctx: &mut Ctx<'_>);
    /// The server starts to load an RDB file or an AOF.
    fn loading_began(ctx: &mut Ctx<'_>);
    /// It has loaded all of it.
    fn loading_ended(ctx: &mut Ctx<'_>);
    /// The server is a primary now, or a replica.
    fn role_changed(ctx: &mut Ctx<'_>, is_primary: bool);
    /// The server forked, to write a snapshot or to rewrite its AOF.
    fn forked(ctx: &mut Ctx<'_>);
    /// The server is about to write a snapshot without a fork: SAVE, a shutdown, or on another thread.
    fn save_began_without_fork(ctx: &mut Ctx<'_>);
    /// A replica has loaded its snapshot.
    fn replica_online(ctx: &mut Ctx<'_>);
    /// A replica is about to acknowledge what it has: see [`Ctx::watch_acknowledgements`].
    fn replica_acknowledges(gil: &mut Gil<'_>);
    /// A database is about to be emptied; -1 = all.
    fn flush_began(ctx: &mut Ctx<'_>, db: c_int);
    /// Two databases were swapped.
    fn swapped(ctx: &mut Ctx<'_>, dbs: [c_int; 2]);
    /// The settings of these names were set.
    fn config_changed(ctx: &mut Ctx<'_>, names: &[&CStr]);
    /// The server is about to drop all keys of these cluster slots, on Redis 8.4 and later: another node has them.
    fn slots_trimmed(ctx: &mut Ctx<'_>, slots: &SlotSet);
    /// An atomic migration of cluster slots, on Valkey 9 and later.
    fn slot_migration(ctx: &mut Ctx<'_>, event: SlotMigration);
}

/// What happens in an atomic migration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SlotMigration {
    /// Slots are about to go to another node.
    ExportBegan,
    /// They have gone, or stay.
    ExportEnded,
    /// Slots come from another node, have come, or do not.
    Import,
}

impl Ctx<'_> {
    /// Subscribes to all; false if the server refuses one.
    pub fn subscribe<E: Events>(&mut self) -> bool {
        let events = [
            raw::REDISMODULE_EVENT_CRON_LOOP,
            raw::REDISMODULE_EVENT_LOADING,
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            raw::REDISMODULE_EVENT_FORK_CHILD,
            raw::REDISMODULE_EVENT_PERSISTENCE,
            raw::REDISMODULE_EVENT_REPLICA_CHANGE,
            raw::REDISMODULE_EVENT_FLUSHDB,
            raw::REDISMODULE_EVENT_SWAPDB,
            raw::REDISMODULE_EVENT_CONFIG,
        ];
        let on_valkey = imports_slots().then_some(ATOMIC_SLOT_MIGRATION);
        let on_redis =
            trims_slots(server_version()).then_some(raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM);
        events.into_iter().chain(on_valkey).chain(on_redis).all(|id| {
            let event = raw::RedisModuleEvent { id, dataver: 1 };
            // SAFETY: the handler has the signature that the server calls.
            unsafe {
                api!(RedisModule_SubscribeToServerEvent)(self.raw(), event, Some(dispatch::<E>))
                    == raw::REDISMODULE_OK as c_int
            }
        })
    }
}

unsafe extern "C" fn dispatch<E: Events>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    // SAFETY: the server passes a context that is valid during the call.
    let ctx = &mut unsafe { Ctx::new(ctx) };
    match (event.id, sub) {
        (raw::REDISMODULE_EVENT_CRON_LOOP, _) => E::cron(ctx),
        (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => E::loading_ended(ctx),
        (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_FAILED) => {}
        (raw::REDISMODULE_EVENT_LOADING, _) => E::loading_began(ctx),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, role) => {
            E::role_changed(ctx, role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER);
        }
        (raw::REDISMODULE_EVENT_FORK_CHILD, raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN) => E::forked(ctx),
        (raw::REDISMODULE_EVENT_PERSISTENCE, raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START) => {
            E::save_began_without_fork(ctx);
        }
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE) => {
            E::replica_online(ctx);
        }
        (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_START) => {
            // SAFETY: this event comes with this struct.
            let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
            E::flush_began(ctx, info.dbnum);
        }
        (raw::REDISMODULE_EVENT_SWAPDB, _) => {
            // SAFETY: this event comes with this struct.
            let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
            E::swapped(ctx, [info.dbnum_first, info.dbnum_second]);
        }
        (raw::REDISMODULE_EVENT_CONFIG, _) => {
            // SAFETY: this event comes with this struct: an array of that many C strings, valid during the call.
            let names = unsafe {
                let change = &*data.cast::<raw::RedisModuleConfigChange>();
                let count = usize::try_from(change.num_changes).unwrap_or(0);
                slice::from_raw_parts(change.config_names, count)
            };
            // SAFETY: each is a C string that is valid during the call.
            let name = |name: &*const c_char| unsafe { CStr::from_ptr(*name) };
            let names: Vec<_> = names.iter().map(name).collect();
            E::config_changed(ctx, &names);
        }
        // Valkey has another event of this number: see below.
        (raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM, sub) if !imports_slots() => {
            // SAFETY: this is the struct of the event.
            unsafe { trimmed::<E>(ctx, sub, data) };
        }
        // Its subevents: import and export began, were aborted, were completed.
        (ATOMIC_SLOT_MIGRATION, 1) => E::slot_migration(ctx, SlotMigration::ExportBegan),
        (ATOMIC_SLOT_MIGRATION, 3 | 5) => E::slot_migration(ctx, SlotMigration::ExportEnded),
        (ATOMIC_SLOT_MIGRATION, _) => E::slot_migration(ctx, SlotMigration::Import),
        _ => {}
    }
}

/// Keys that the server drops one by one need nothing: their values get calls of `unlink`.
///
/// # Safety
///
/// The data are those of a trim event.
unsafe fn trimmed<E: Events>(ctx: &mut Ctx<'_>, sub: u64, data: *mut c_void) {
    if sub != raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_TRIM_BACKGROUND {
        return;
    }
    // SAFETY: the struct has an array of that many ranges, valid during the call.
    let ranges = unsafe {
        let slots = (*data.cast::<raw::RedisModuleClusterSlotMigrationTrimInfo>()).slots;
        let first = (&raw const (*slots).ranges).cast::<raw::RedisModuleSlotRange>();
        slice::from_raw_parts(first, usize::try_from((*slots).num_ranges).unwrap_or(0))
    };
    let ranges = ranges
        .iter()
        .map(|range| usize::from(range.start)..=usize::from(range.end));
    E::slots_trimmed(ctx, &ranges.flatten().collect());
}
