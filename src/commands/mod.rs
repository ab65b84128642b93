//! The commands, one file each. `load` registers them.

mod acquire;
mod apply;
mod extend;
mod grants;
mod guard;
mod help;
mod info;
mod owner;
mod probe;
mod release;
mod sync;

pub use acquire::Acquire;
pub use apply::Apply;
pub use extend::Extend;
pub use grants::Grants;
pub use guard::Guard;
pub use help::Help;
pub use info::Info;
pub use owner::Owner;
pub use probe::Probe;
pub use release::Release;
pub use sync::CheckpointCommand;

/// The ACL category of the commands of clients.
pub const CATEGORY: &str = "dlock";
