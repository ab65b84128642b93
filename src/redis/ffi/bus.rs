//! Messages between the nodes of a cluster, over its bus. They may be lost.

use std::ffi::{c_char, c_uchar};
use std::slice;

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;

/// A node's name.
type NodeId = [u8; raw::REDISMODULE_NODE_ID_LEN as usize];

/// What the module does with a message.
///
/// All modules whose names are not nine bytes long share the message types, and the last one that registers a type gets
/// its messages. So the type should be a number that another module is unlikely to use.
pub trait Receiver {
    const MESSAGE_TYPE: u8;
    fn received(ctx: &mut Ctx<'_>, sender: NodeId, message: &[u8]);
}

impl Ctx<'_> {
    /// Sends a message of this type to all nodes of the cluster that are connected.
    pub fn broadcast(&self, message_type: u8, message: &[u8]) {
        let Ok(len) = u32::try_from(message.len()) else {
            return;
        };
        // SAFETY: no target stands for all nodes, and the server copies the message.
        unsafe {
            let all = std::ptr::null();
            api!(RedisModule_SendClusterMessage)(self.raw(), all, message_type, message.as_ptr().cast(), len);
        }
    }

    /// Receives messages from now on. Nothing happens on a server that is no node of a cluster.
    pub fn receive_messages<R: Receiver>(&self) {
        // SAFETY: the callback has the signature that the server calls.
        unsafe {
            api!(RedisModule_RegisterClusterMessageReceiver)(self.raw(), R::MESSAGE_TYPE, Some(received::<R>))
        };
    }
}

unsafe extern "C" fn received<R: Receiver>(
    ctx: *mut raw::RedisModuleCtx,
    sender: *const c_char,
    _: u8,
    message: *const c_uchar,
    len: u32,
) {
    // SAFETY: the server passes a context, the name of a node and a message of this length, valid during the call.
    let (mut ctx, sender, message) = unsafe {
        (
            Ctx::new(ctx),
            *sender.cast::<NodeId>(),
            slice::from_raw_parts(message, len as usize),
        )
    };
    R::received(&mut ctx, sender, message);
}
