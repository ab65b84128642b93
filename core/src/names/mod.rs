//! What locks, owners, requests, positions and inboxes are called.

mod inbox_id;
mod limit;
mod name;
mod owner;
mod request_key;
mod shortened;
mod ticket;

pub(crate) use inbox_id::MAX_INBOX_BYTES;
pub use inbox_id::{Call, InboxId};
pub use limit::Limit;
pub use name::{LockName, LockNameRef};
pub(crate) use owner::{MAX_OWNER_BYTES, MAX_REQUEST_ID_BYTES, Owner, RequestId};
pub(crate) use request_key::RequestKey;
pub(crate) use shortened::Shortened;
pub use ticket::Ticket;
