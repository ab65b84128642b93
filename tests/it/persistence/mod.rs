//! What survives a restart: RDB, AOF, DUMP and RESTORE, fences, the grace period.

mod corrupt_restore;
mod dump_restore;
mod fences;
mod forkless;
mod grace_period;
mod removal;
mod restart;
