//! The commands, one file each. `crate` (lib.rs) lists them.

mod acquire;
mod apply;
pub mod entry;
mod extend;
mod info;
mod owner;
mod probe;
mod release;
mod sync;

pub use acquire::{Acquire, reply_granted};
pub use apply::Apply;
pub use extend::Extend;
pub use info::Info;
pub use owner::Owner;
pub use probe::Probe;
pub use release::Release;
pub use sync::Sync;
