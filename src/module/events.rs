//! What the server tells us beside commands. The handlers only mark; what follows from it is done by the
//! next command or tick.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use crate::expiry::sweeper;
use crate::module::eviction;
use crate::module::state;
use crate::redis::api::required;
use crate::redis::ctx::{self, Ctx};
use crate::replication::targets;
use crate::waiting::due;
use dlock_core::{AdvanceReason, Instant};

/// Subscribes to all; false when the server refuses one.
pub fn subscribe(ctx: Ctx<'_>) -> bool {
    let handlers: [(u64, raw::RedisModuleEventCallback); 8] = [
        (raw::REDISMODULE_EVENT_CRON_LOOP, Some(cron)),
        (raw::REDISMODULE_EVENT_LOADING, Some(loading)),
        (
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            Some(role_changed),
        ),
        (raw::REDISMODULE_EVENT_FORK_CHILD, Some(forked)),
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, Some(replica_changed)),
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(flush)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(swap)),
        (raw::REDISMODULE_EVENT_CONFIG, Some(config_changed)),
    ];
    handlers.into_iter().all(|(id, handler)| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is valid, the handlers have the signature that the server calls.
        unsafe { required(raw::RedisModule_SubscribeToServerEvent)(ctx.raw(), event, handler) == OK }
    })
}

const OK: c_int = raw::REDISMODULE_OK as c_int;

unsafe extern "C" fn cron(raw: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, _: u64, _: *mut c_void) {
    // SAFETY: the server passes a context that is valid during the call.
    sweeper::tick(unsafe { Ctx::new(raw) });
}

unsafe extern "C" fn loading(
    raw: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    sub: u64,
    _: *mut c_void,
) {
    if sub != raw::REDISMODULE_SUBEVENT_LOADING_ENDED && sub != raw::REDISMODULE_SUBEVENT_LOADING_FAILED {
        // Nobody is served from now on, and nothing ticks: what was emptied need not take memory beside what comes.
        while state::with(|state| state.registry.free_chunk()) {}
    }
    if sub == raw::REDISMODULE_SUBEVENT_LOADING_ENDED {
        // SAFETY: the server passes a context that is valid during the call.
        let (flags, now) = (unsafe { Ctx::new(raw) }.flags(), ctx::now());
        // A node of a cluster takes itself for a primary until its first cron has read who it is. That comes
        // before our first tick, and before the node serves any slot.
        if !flags.is_cluster() {
            state::with(|state| state.settle_grace(flags, now));
        }
    }
}

unsafe extern "C" fn role_changed(
    _: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    sub: u64,
    _: *mut c_void,
) {
    state::with(|state| {
        state.audience.may_have_changed();
        if sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
            state.fences.request_advance(AdvanceReason::Promotion);
            state.grace.promoted();
        } else {
            state.grace.demoted();
            state.waiting.schedule_db(None, Instant::DISTANT_PAST);
        }
    });
    due::arm();
}

/// The server makes a snapshot: whoever gets it hears what comes from now on. When it is to begin a log, what
/// goes into that comes after the snapshot, which on servers without `aux_save2` lacks what is no lock.
unsafe extern "C" fn forked(
    raw: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    sub: u64,
    _: *mut c_void,
) {
    // SAFETY: the server passes a context that is valid during the call.
    let ctx = unsafe { Ctx::new(raw) };
    if sub != raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN {
        return;
    }
    targets::look(ctx);
    if ctx.info_number(c"persistence", c"aof_rewrite_in_progress") > Some(0) {
        sweeper::sync_soon(ctx);
    }
}

/// A replica has loaded its snapshot, with the same gap.
unsafe extern "C" fn replica_changed(
    raw: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    sub: u64,
    _: *mut c_void,
) {
    if sub == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE {
        // SAFETY: the server passes a context that is valid during the call.
        sweeper::sync_soon(unsafe { Ctx::new(raw) });
    }
}

unsafe extern "C" fn flush(
    _: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
        // SAFETY: the server passes this struct with this event.
        let db = unsafe { (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum };
        state::with(|state| {
            state.registry.flush(db);
            state
                .waiting
                .schedule_db(Some(db).filter(|db| *db >= 0), Instant::DISTANT_PAST);
        });
        due::arm();
    }
}

unsafe extern "C" fn swap(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, _: u64, data: *mut c_void) {
    // SAFETY: the server passes this struct with this event.
    let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
    state::with(|state| {
        state.registry.swap(info.dbnum_first, info.dbnum_second);
        for db in [info.dbnum_first, info.dbnum_second] {
            state.waiting.schedule_db(Some(db), Instant::DISTANT_PAST);
        }
    });
    due::arm();
}

unsafe extern "C" fn config_changed(
    raw: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    // SAFETY: the server passes a context that is valid during the call.
    eviction::look(unsafe { Ctx::new(raw) });
}
