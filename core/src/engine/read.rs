//! Commands that only read.

use super::host::{Flags, Host};
use crate::time::LeaseClock;

/// The most waiters that INFO shows.
pub const MAX_WAITERS_SHOWN: usize = 128;

/// Begins a command that only reads: by which leases are compared. The clock is read here, once for each command.
pub fn begin_read<H: Host>(host: &mut H, flags: Flags) -> LeaseClock {
    let now = host.now();
    host.state().server.begin_read(flags.role(), now)
}
