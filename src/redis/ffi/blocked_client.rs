//! Clients that wait for a reply. The server's handle of one must be unblocked exactly once, whatever happens.

use std::ffi::{c_int, c_void};
use std::num::NonZeroUsize;
use std::ptr;

use redis_module::raw;

use crate::redis::ffi::api::{api, server_version};
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::gil::Gil;
use crate::redis::versions::aborts_at_unblock;

/// What tells the module which client the server asks about. The server does not look at it.
pub type Token = NonZeroUsize;

/// What the server calls for a blocked client.
pub trait Blocked: 'static {
    /// Writes the reply to a client that is still connected. `None`: it was unblocked without a token.
    fn reply(token: Option<Token>, ctx: &mut Ctx<'_>);
    /// CLIENT UNBLOCK TIMEOUT. The client waits for a reply.
    fn unblocked(ctx: &mut Ctx<'_>, id: BlockedId);
    /// Closed, killed, CLIENT UNBLOCK ERROR, or a change of role. Also called for a client that was unblocked in the
    /// same iteration of the event loop; that one is left to `free`.
    fn disconnected(ctx: &mut Ctx<'_>, id: BlockedId);
    /// The server is done with a client that was unblocked with a token. One that `is_gone` got no reply. Must not reply.
    fn free(token: Token, gil: &mut Gil<'_>, is_gone: bool);
}

/// A blocked client. Not `Copy`: what unblocks it consumes it.
#[must_use]
pub struct BlockedClient(*mut raw::RedisModuleBlockedClient);

/// Names a blocked client until it is unblocked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockedId(*mut raw::RedisModuleBlockedClient);

impl BlockedClient {
    /// Blocks the client of the running command, which must be one that can block.
    pub fn block<B: Blocked>(ctx: &Ctx<'_>) -> Self {
        // SAFETY: the context is that of a command of a client. No timeout: the module keeps the time itself. A
        // timeout of the server would race with a grant, or need the callback that may be missing.
        let raw = unsafe {
            api!(RedisModule_BlockClient)(
                ctx.raw(),
                Some(reply::<B>),
                client_unblock::<B>(),
                Some(free::<B>),
                0,
            )
        };
        // SAFETY: the handle was just made.
        unsafe { api!(RedisModule_SetDisconnectCallback)(raw, Some(disconnected::<B>)) };
        Self(raw)
    }

    pub fn id(&self) -> BlockedId {
        BlockedId(self.0)
    }

    /// The server passes the token to [`Blocked::reply`], soon, and then to [`Blocked::free`].
    pub fn unblock(self, _: &mut Gil<'_>, token: Option<Token>) {
        let token = token.map_or(ptr::null_mut(), |token| ptr::without_provenance_mut(token.get()));
        // SAFETY: only `block` makes a handle, and this consumes it: it has not been unblocked before. The token is no
        // pointer, and nobody takes it for one.
        unsafe { api!(RedisModule_UnblockClient)(self.0, token) };
    }
}

/// Timeout callback; none where the server would abort (CLIENT UNBLOCK then replies 0, as for a client that is not
/// blocked).
fn client_unblock<B: Blocked>() -> raw::RedisModuleCmdFunc {
    (!aborts_at_unblock(server_version())).then_some(unblocked::<B>)
}

unsafe extern "C" fn reply<B: Blocked>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the context is valid during the call.
    let (token, mut ctx) = unsafe { (api!(RedisModule_GetBlockedClientPrivateData)(ctx), Ctx::new(ctx)) };
    B::reply(Token::new(token.addr()), &mut ctx);
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn unblocked<B: Blocked>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the context is valid during the call.
    let (handle, mut ctx) = unsafe { (api!(RedisModule_GetBlockedClientHandle)(ctx), Ctx::new(ctx)) };
    B::unblocked(&mut ctx, BlockedId(handle));
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn disconnected<B: Blocked>(
    ctx: *mut raw::RedisModuleCtx,
    handle: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the context is valid during the call.
    B::disconnected(&mut unsafe { Ctx::new(ctx) }, BlockedId(handle));
}

/// Not called for a client without a token.
unsafe extern "C" fn free<B: Blocked>(ctx: *mut raw::RedisModuleCtx, token: *mut c_void) {
    // SAFETY: the context is valid during the call, though it may have no client any more.
    let (is_gone, mut gil) = unsafe {
        (
            api!(RedisModule_BlockedClientDisconnected)(ctx) != 0,
            Gil::assume(),
        )
    };
    if let Some(token) = Token::new(token.addr()) {
        B::free(token, &mut gil, is_gone);
    }
}
