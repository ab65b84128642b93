//! CPU affinity of the client and of a server, which only Linux lets a program set.

#[cfg(target_os = "linux")]
use rustix::process::Pid;
#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::Result;
use crate::server::Server;

/// Pins this thread to one core and the server's command thread to another, like two machines, until dropped.
///
/// Otherwise the scheduler often puts both on the same core for cache locality, and the client cannot read a reply
/// before the server has finished everything it does after writing it.
pub struct PinnedCores {
    #[cfg(target_os = "linux")]
    previous: CpuSet,
}

#[cfg(target_os = "linux")]
impl PinnedCores {
    /// `None`: this process may use one core only.
    pub fn pin(server: &Server) -> Result<Option<Self>> {
        let previous = sched_getaffinity(None)?;
        // The first and the last: neighbours may be two hyperthreads of one core.
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| previous.is_set(*core));
        let (Some(client_core), Some(server_core)) = (cores.next(), cores.next_back()) else {
            return Ok(None);
        };
        let pid = Pid::from_raw(server.pid().cast_signed());
        sched_setaffinity(pid, &only(server_core))?;
        sched_setaffinity(None, &only(client_core))?;
        Ok(Some(Self { previous }))
    }
}

#[cfg(target_os = "linux")]
impl Drop for PinnedCores {
    fn drop(&mut self) {
        // Fails only if these cores have been taken offline.
        let _ = sched_setaffinity(None, &self.previous);
    }
}

#[cfg(target_os = "linux")]
fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

#[cfg(not(target_os = "linux"))]
impl PinnedCores {
    /// `None`: the scheduler decides.
    pub fn pin(_: &Server) -> Result<Option<Self>> {
        Ok(None)
    }
}
