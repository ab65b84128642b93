//! Clients that wait for a reply. The server's handle of one must be unblocked exactly once, whatever happens.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use redis_module::raw;

use crate::redis::ffi::api::{api, server_version};
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::gil::Gil;
use crate::redis::versions::aborts_at_unblock;

/// The answer to a blocked client, with the callbacks of the server.
pub trait Blocked: Sized + 'static {
    /// Writes the answer to a client that is still connected. `None`: it was unblocked without an answer.
    fn reply(answer: Option<&Self>, ctx: &mut Ctx<'_>);
    /// CLIENT UNBLOCK TIMEOUT. The client waits for a reply.
    fn unblocked(ctx: &mut Ctx<'_>, id: BlockedId);
    /// Closed, killed, CLIENT UNBLOCK ERROR, or a change of role. Also called for a client that was answered in the
    /// same iteration of the event loop; that one is left to `free`.
    fn disconnected(ctx: &mut Ctx<'_>, id: BlockedId);
    /// The server does not need the answer any more. A client that `is_gone` may not have received it. Must not reply.
    fn free(self: Box<Self>, gil: &mut Gil<'_>, is_gone: bool);
}

/// A blocked client whose answer is a `T`. Not `Copy`: what unblocks it consumes it.
#[must_use]
pub struct BlockedClient<T> {
    raw: *mut raw::RedisModuleBlockedClient,
    answer: PhantomData<fn(T)>,
}

/// Names a blocked client until it is unblocked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockedId(*mut raw::RedisModuleBlockedClient);

impl<T: Blocked> BlockedClient<T> {
    /// Blocks the client of the running command, which must be one that can block.
    pub fn block(ctx: &Ctx<'_>) -> Self {
        // SAFETY: the context is that of a command of a client. No timeout: the module keeps the time itself. A
        // timeout of the server would race with a grant, or need the callback that may be missing.
        let raw = unsafe {
            api!(RedisModule_BlockClient)(
                ctx.raw(),
                Some(reply::<T>),
                client_unblock::<T>(),
                Some(free::<T>),
                0,
            )
        };
        // SAFETY: the handle was just made.
        unsafe { api!(RedisModule_SetDisconnectCallback)(raw, Some(disconnected::<T>)) };
        Self {
            raw,
            answer: PhantomData,
        }
    }

    pub fn id(&self) -> BlockedId {
        BlockedId(self.raw)
    }

    /// The server passes the answer to [`Blocked::reply`], soon, and then to [`Blocked::free`].
    pub fn unblock(self, _: &mut Gil<'_>, answer: Option<Box<T>>) {
        let answer = answer.map_or(std::ptr::null_mut(), Box::into_raw);
        // SAFETY: only `block` makes a handle, and this consumes it: it has not been unblocked before.
        unsafe { api!(RedisModule_UnblockClient)(self.raw, answer.cast()) };
    }
}

/// Timeout callback; none where the server would abort (CLIENT UNBLOCK then replies 0, as for a client that is not
/// blocked).
fn client_unblock<T: Blocked>() -> raw::RedisModuleCmdFunc {
    (!aborts_at_unblock(server_version())).then_some(unblocked::<T>)
}

unsafe extern "C" fn reply<T: Blocked>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the context is valid during the call, and what travels with it is a `T`, if anything.
    let (answer, mut ctx) = unsafe {
        let answer = api!(RedisModule_GetBlockedClientPrivateData)(ctx);
        (answer.cast::<T>().as_ref(), Ctx::new(ctx))
    };
    T::reply(answer, &mut ctx);
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn unblocked<T: Blocked>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the context is valid during the call.
    let (handle, mut ctx) = unsafe { (api!(RedisModule_GetBlockedClientHandle)(ctx), Ctx::new(ctx)) };
    T::unblocked(&mut ctx, BlockedId(handle));
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn disconnected<T: Blocked>(
    ctx: *mut raw::RedisModuleCtx,
    handle: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the context is valid during the call.
    T::disconnected(&mut unsafe { Ctx::new(ctx) }, BlockedId(handle));
}

unsafe extern "C" fn free<T: Blocked>(ctx: *mut raw::RedisModuleCtx, answer: *mut c_void) {
    // SAFETY: the box that `unblock` sent, given back once: for a client without an answer the server does not call
    // this. The context is valid during the call, though it may have no client any more.
    let (answer, is_gone, mut gil) = unsafe {
        (
            Box::from_raw(answer.cast::<T>()),
            api!(RedisModule_BlockedClientDisconnected)(ctx) != 0,
            Gil::assume(),
        )
    };
    answer.free(&mut gil, is_gone);
}
