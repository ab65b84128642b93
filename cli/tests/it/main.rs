//! Integration tests of `dlock`, with real servers. One binary, so that it is linked once.

mod break_lock;
mod connect;
mod deployments;
mod doctor;
mod drill;
mod errors;
mod generate;
mod ls;
mod page;
mod run;
mod run_deadline;
mod run_lock_lost;
mod run_quorum;
mod run_terminal;
mod show;
mod stats;
mod support;
mod top;
