//! Job control: runs a command in the foreground or background like a shell does, and stops it when what protects it is
//! lost. Knows nothing of locks.

mod job;
mod parent_death;
mod signals;
mod stderr_writer;
mod supervisor;
mod terminal;

pub use job::Job;
pub use parent_death::exec_if_helper;
pub use signals::Signals;
pub use stderr_writer::{StderrSender, StderrWriter};
pub use supervisor::{OnLost, Protection, Rules, Supervisor, exit_code_of};
