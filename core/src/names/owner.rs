//! Owners and request ids.

use std::rc::Rc;

/// The largest length of an owner.
pub const MAX_OWNER_BYTES: usize = 512;
/// The largest length of a request id.
pub const MAX_REQUEST_ID_BYTES: usize = 64;

/// An owner, shared by all that refer to it.
pub type Owner = Rc<[u8]>;

/// A request id, shared by all that refer to it.
pub type RequestId = Rc<[u8]>;
