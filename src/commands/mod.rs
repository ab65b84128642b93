//! The commands of clients, one file each. `module::load` registers them.

mod acquire;
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
