//! Events of the server.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use crate::redis::api::api;
use crate::redis::ctx::{Ctx, imports_slots};

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
    /// The server is about to write a snapshot without a fork: SAVE, a shutdown.
    fn foreground_save_began(ctx: &mut Ctx<'_>);
    /// A replica has loaded its snapshot.
    fn replica_online(ctx: &mut Ctx<'_>);
    /// A database is about to be emptied; -1 = all.
    fn flush_began(ctx: &mut Ctx<'_>, db: c_int);
    /// Two databases were swapped.
    fn swapped(ctx: &mut Ctx<'_>, dbs: [c_int; 2]);
    /// A setting of the server was changed.
    fn config_changed(ctx: &mut Ctx<'_>);
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

/// Of Valkey only: Redis has another event of this number.
const ATOMIC_SLOT_MIGRATION: u64 = 19;

impl Ctx<'_> {
    /// Subscribes to all; false if the server refuses one.
    pub fn subscribe<E: Events>(&mut self) -> bool {
        let handlers: [(u64, raw::RedisModuleEventCallback); 9] = [
            (raw::REDISMODULE_EVENT_CRON_LOOP, Some(cron::<E>)),
            (raw::REDISMODULE_EVENT_LOADING, Some(loading::<E>)),
            (
                raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
                Some(role_changed::<E>),
            ),
            (raw::REDISMODULE_EVENT_FORK_CHILD, Some(forked::<E>)),
            (raw::REDISMODULE_EVENT_PERSISTENCE, Some(persistence::<E>)),
            (raw::REDISMODULE_EVENT_REPLICA_CHANGE, Some(replica_changed::<E>)),
            (raw::REDISMODULE_EVENT_FLUSHDB, Some(flushed::<E>)),
            (raw::REDISMODULE_EVENT_SWAPDB, Some(swapped::<E>)),
            (raw::REDISMODULE_EVENT_CONFIG, Some(config_changed::<E>)),
        ];
        let on_valkey = imports_slots().then_some((ATOMIC_SLOT_MIGRATION, Some(slot_migration::<E> as _)));
        handlers.into_iter().chain(on_valkey).all(|(id, handler)| {
            let event = raw::RedisModuleEvent { id, dataver: 1 };
            // SAFETY: the context is valid, the handlers have the signature that the server calls.
            unsafe { api!(RedisModule_SubscribeToServerEvent)(self.raw(), event, handler) == OK }
        })
    }
}

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// The context and the event, its subevent, and its data.
type Raw = *mut raw::RedisModuleCtx;
type Event = raw::RedisModuleEvent;

unsafe extern "C" fn cron<E: Events>(ctx: Raw, _: Event, _: u64, _: *mut c_void) {
    // SAFETY: the server passes a context that is valid during the call.
    E::cron(&mut unsafe { Ctx::new(ctx) });
}

unsafe extern "C" fn loading<E: Events>(ctx: Raw, _: Event, sub: u64, _: *mut c_void) {
    // SAFETY: the server passes a context that is valid during the call.
    let mut ctx = unsafe { Ctx::new(ctx) };
    match sub {
        raw::REDISMODULE_SUBEVENT_LOADING_ENDED => E::loading_ended(&mut ctx),
        raw::REDISMODULE_SUBEVENT_LOADING_FAILED => {}
        _ => E::loading_began(&mut ctx),
    }
}

unsafe extern "C" fn role_changed<E: Events>(ctx: Raw, _: Event, sub: u64, _: *mut c_void) {
    let is_primary = sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER;
    // SAFETY: the server passes a context that is valid during the call.
    E::role_changed(&mut unsafe { Ctx::new(ctx) }, is_primary);
}

unsafe extern "C" fn forked<E: Events>(ctx: Raw, _: Event, sub: u64, _: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN {
        // SAFETY: the server passes a context that is valid during the call.
        E::forked(&mut unsafe { Ctx::new(ctx) });
    }
}

unsafe extern "C" fn persistence<E: Events>(ctx: Raw, _: Event, sub: u64, _: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START {
        // SAFETY: the server passes a context that is valid during the call.
        E::foreground_save_began(&mut unsafe { Ctx::new(ctx) });
    }
}

unsafe extern "C" fn replica_changed<E: Events>(ctx: Raw, _: Event, sub: u64, _: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE {
        // SAFETY: the server passes a context that is valid during the call.
        E::replica_online(&mut unsafe { Ctx::new(ctx) });
    }
}

unsafe extern "C" fn flushed<E: Events>(ctx: Raw, _: Event, sub: u64, data: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
        // SAFETY: the server passes a context that is valid during the call, and this struct with this event.
        let (mut ctx, db) = unsafe { (Ctx::new(ctx), (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum) };
        E::flush_began(&mut ctx, db);
    }
}

unsafe extern "C" fn swapped<E: Events>(ctx: Raw, _: Event, _: u64, data: *mut c_void) {
    // SAFETY: the server passes a context that is valid during the call, and this struct with this event.
    let (mut ctx, info) = unsafe { (Ctx::new(ctx), &*data.cast::<raw::RedisModuleSwapDbInfo>()) };
    E::swapped(&mut ctx, [info.dbnum_first, info.dbnum_second]);
}

unsafe extern "C" fn config_changed<E: Events>(ctx: Raw, _: Event, _: u64, _: *mut c_void) {
    // SAFETY: the server passes a context that is valid during the call.
    E::config_changed(&mut unsafe { Ctx::new(ctx) });
}

unsafe extern "C" fn slot_migration<E: Events>(ctx: Raw, _: Event, sub: u64, _: *mut c_void) {
    // In this order: import and export began, were aborted, were completed.
    let event = match sub {
        1 => SlotMigration::ExportBegan,
        3 | 5 => SlotMigration::ExportEnded,
        _ => SlotMigration::Import,
    };
    // SAFETY: the server passes a context that is valid during the call.
    E::slot_migration(&mut unsafe { Ctx::new(ctx) }, event);
}
