//! The commands, one file each. `load` registers them.

mod acquire;
pub mod apply;
mod extend;
mod guard;
mod info;
mod owner;
mod release;

pub use acquire::Acquire;
pub use extend::Extend;
pub use guard::Guard;
pub use info::Info;
pub use owner::Owner;
pub use release::Release;
