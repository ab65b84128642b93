//! Blocked clients. All that touches the server's handles of them is here.
//!
//! A client is in one state at a time, and the first to end it wins:
//!
//! ```text
//! waiting -> answered   its ticket got an answer: the server calls `reply`, then `free`
//!         -> gone       closed, killed, unblocked by hand, or the server changed its role
//! ```
//!
//! In both cases the handle is unblocked exactly once. An answered client may vanish before `reply`: then
//! only `free` is called, and a grant has to be undone.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use redis_module::raw;

use crate::commands::entry::{Call, Failure};
use crate::commands::reply_granted;
use crate::module::state;
use crate::redis::api::required;
use crate::redis::ctx::Ctx;
use crate::waiting::due;
use dlock_core::{Acquire, Answer, Error, Granted, LockName, Ticket};

/// The clients that wait.
pub struct Clients {
    by_ticket: BTreeMap<Ticket, Box<Client>>,
    by_handle: BTreeMap<Handle, Ticket>,
    /// Handles of clients that wait no more. They are forgotten before the next client waits, whose handle may
    /// be at the same address: who is let in should not have to wait for that.
    left: Vec<Handle>,
    /// Named grants on their way to clients.
    in_flight: BTreeMap<Ticket, Wanted>,
    /// Clients, by id, that the server may have unblocked without the answer that they had.
    unanswered: Vec<u64>,
}

/// A request that was granted, by which its owner may ask for the hold again.
struct Wanted {
    name: LockName,
    owner: Box<[u8]>,
    request_id: Box<[u8]>,
}

/// The server's handle of a blocked client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Handle(*mut raw::RedisModuleBlockedClient);

/// A client in its box, which travels with the answer and comes back to `free`.
struct Client {
    ticket: Ticket,
    handle: Handle,
    name: LockName,
    owner: Box<[u8]>,
    request_id: Option<Box<[u8]>>,
    /// The answer, when there is one.
    told: Option<Told>,
}

/// What a client is told.
pub enum Told {
    Answer(Answer),
    /// An error of the server's own kind, MOVED for instance.
    Error(String),
}

/// A hold that was granted.
pub struct Hold {
    pub name: LockName,
    pub owner: Box<[u8]>,
    pub request_id: Option<Box<[u8]>>,
    pub fence: u64,
}

impl Clients {
    pub const fn none() -> Self {
        Self {
            by_ticket: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            left: Vec::new(),
            in_flight: BTreeMap::new(),
            unanswered: Vec::new(),
        }
    }

    fn insert(&mut self, client: Box<Client>) {
        for handle in self.left.drain(..) {
            self.by_handle.remove(&handle);
        }
        self.by_handle.insert(client.handle, client.ticket);
        self.by_ticket.insert(client.ticket, client);
    }

    fn take(&mut self, ticket: Ticket) -> Option<Box<Client>> {
        let client = self.by_ticket.remove(&ticket)?;
        self.left.push(client.handle);
        Some(client)
    }

    /// A client asks again for a hold on whose way to it nobody knows whether it arrives.
    pub fn receive_elsewhere(&mut self, db: c_int, key: &[u8], owner: &[u8], request_id: &[u8]) {
        self.in_flight.retain(|_, wanted| {
            let same_lock = wanted.name.db == db && *wanted.name.key == *key;
            !(same_lock && *wanted.owner == *owner && *wanted.request_id == *request_id)
        });
    }

    pub fn any_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    fn take_by_handle(&mut self, handle: Handle) -> Option<Box<Client>> {
        let ticket = self.by_handle.get(&handle).copied()?;
        self.take(ticket)
    }
}

/// Blocks the calling client until its ticket has an answer.
pub fn block(call: &Call<'_>, ticket: Ticket, name: LockName, request: &Acquire<'_>) {
    // SAFETY: the context is that of a command of a client that can block. No timeout: the module keeps the time
    // itself, and a timeout of the server would race with a grant, or need the callback that may be missing.
    let handle = unsafe {
        required(raw::RedisModule_BlockClient)(
            call.ctx.raw(),
            Some(reply),
            unblocking_by_hand(),
            Some(free),
            0,
        )
    };
    // SAFETY: the handle was just made.
    unsafe { required(raw::RedisModule_SetDisconnectCallback)(handle, Some(disconnected)) };
    let client = Box::new(Client {
        ticket,
        handle: Handle(handle),
        name,
        owner: request.owner.into(),
        request_id: request.request_id.map(Into::into),
        told: None,
    });
    state::with(|state| state.clients.insert(client));
}

/// Gives the client of a ticket its answer.
pub fn answer(ticket: Ticket, told: Told) {
    let Some(mut client) = state::with(|state| state.clients.take(ticket)) else {
        return;
    };
    let handle = client.handle;
    if let (Told::Answer(Answer::Granted(_)), Some(id)) = (&told, &client.request_id) {
        let wanted = Wanted {
            name: client.name.clone(),
            owner: client.owner.clone(),
            request_id: id.clone(),
        };
        state::with(|state| state.clients.in_flight.insert(ticket, wanted));
    }
    client.told = Some(told);
    // SAFETY: a handle in the map has not been unblocked, and has left the map. The server gives the
    // client's box back to `free`.
    unsafe { required(raw::RedisModule_UnblockClient)(handle.0, Box::into_raw(client).cast()) };
}

/// A client stops waiting without an answer of ours; whether it still waited.
fn leave(handle: Handle) -> bool {
    let left = state::with(|state| {
        let client = state.clients.take_by_handle(handle)?;
        state.waiting.remove_waiter(&client.name, client.ticket);
        Some(())
    });
    if left.is_some() {
        // SAFETY: the handle was in the map, so that it has not been unblocked, and has left the map.
        unsafe { required(raw::RedisModule_UnblockClient)(handle.0, std::ptr::null_mut()) };
        due::arm();
    }
    left.is_some()
}

/// The server writes the answer to a client that is still there.
unsafe extern "C" fn reply(
    raw: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the context is valid during the call, and what travels with it is a client of ours, if any.
    let (ctx, client) = unsafe {
        let data = required(raw::RedisModule_GetBlockedClientPrivateData)(raw);
        (Ctx::new(raw), data.cast::<Client>().as_ref())
    };
    match client.and_then(|client| client.told.as_ref()) {
        Some(Told::Answer(Answer::Granted(granted))) => reply_granted(ctx, granted),
        Some(Told::Answer(Answer::Refused(refusal))) => Failure::from(refusal.clone()).reply(ctx),
        Some(Told::Error(error)) => ctx.reply_error(error),
        Some(Told::Answer(Answer::TimedOut | Answer::Withdrawn)) | None => ctx.reply_null_array(),
    }
    raw::REDISMODULE_OK as c_int
}

/// What CLIENT UNBLOCK calls, or nothing where it would end the server: then it answers 0, as for a client that
/// is not blocked.
fn unblocking_by_hand() -> raw::RedisModuleCmdFunc {
    match server_version() {
        // Redis and Valkey 7.2 abort when CLIENT UNBLOCK TIMEOUT meets an answer.
        REDIS_7_2..REDIS_7_3 => None,
        _ => Some(unblocked_by_hand),
    }
}

/// Before Redis 7.2, a client that was answered a moment before CLIENT UNBLOCK TIMEOUT is left without any reply.
fn unblocks_without_answer() -> bool {
    server_version() < REDIS_7_2
}

const REDIS_7_2: c_int = 0x0007_0200;
const REDIS_7_3: c_int = 0x0007_0300;

/// `0x00MMmmpp`. Redict and Valkey count on from Redis 7.2.
fn server_version() -> c_int {
    // SAFETY: takes nothing.
    unsafe { required(raw::RedisModule_GetServerVersion)() }
}

/// CLIENT UNBLOCK TIMEOUT: the server has no timeout of its own here.
unsafe extern "C" fn unblocked_by_hand(
    raw: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the context is valid during the call.
    let (ctx, handle) = unsafe {
        (
            Ctx::new(raw),
            required(raw::RedisModule_GetBlockedClientHandle)(raw),
        )
    };
    ctx.reply_null_array();
    leave(Handle(handle));
    raw::REDISMODULE_OK as c_int
}

/// Closed, killed, CLIENT UNBLOCK ERROR, or a change of role. Also called for a client that was answered in
/// the same pass of the server's loop; that one is left to `free`.
unsafe extern "C" fn disconnected(raw: *mut raw::RedisModuleCtx, handle: *mut raw::RedisModuleBlockedClient) {
    if !leave(Handle(handle)) && unblocks_without_answer() {
        // SAFETY: the context is valid during the call.
        let id = unsafe { required(raw::RedisModule_GetClientId)(raw) };
        state::with(|state| state.clients.unanswered.push(id));
    }
}

/// Closes the connections of clients that would wait for ever for a reply. Most have closed by themselves. Not
/// from `disconnected`, which the server also calls for a client that it is about to free.
fn close_unanswered(raw: *mut raw::RedisModuleCtx) {
    for id in state::with(|state| std::mem::take(&mut state.clients.unanswered)) {
        // SAFETY: takes any number. The client is only marked: it may have more commands, but none of them runs
        // any more, and it is freed when nothing of it is in use.
        unsafe { required(raw::RedisModule_DeauthenticateAndCloseClient)(raw, id) };
    }
}

/// The server is done with an answer. Nothing may be written here: there may be no client any more.
unsafe extern "C" fn free(raw: *mut raw::RedisModuleCtx, client: *mut c_void) {
    // SAFETY: the box that `answer` sent, given back once.
    let client = unsafe { Box::from_raw(client.cast::<Client>()) };
    // SAFETY: the context is valid during the call.
    let is_gone = unsafe { required(raw::RedisModule_BlockedClientDisconnected)(raw) != 0 };
    if is_gone {
        close_unanswered(raw);
    }
    let Client {
        ticket,
        name,
        owner,
        request_id,
        told,
        ..
    } = *client;
    // A client that was replaced had the ticket of the one which took its place.
    let Some(Told::Answer(Answer::Granted(Granted { fence, .. }))) = told else {
        return;
    };
    // A named hold that was asked for again, on another connection, has been received there.
    let in_flight = state::with(|state| state.clients.in_flight.remove(&ticket).is_some());
    let is_wanted = request_id.is_some() && !in_flight;
    if is_gone && !is_wanted {
        state::with(|state| {
            state.undeliverable.push(Hold {
                name,
                owner,
                request_id,
                fence,
            })
        });
        due::arm();
    }
}

/// The answer to a client whose place another one with the same request id has taken.
pub fn replace(ticket: Ticket) {
    answer(ticket, Told::Answer(Answer::Refused(Error::Replaced)));
}
