//! Which cores the client and a server run on. Only Linux lets a program choose.

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Result;
use crate::server::Server;

/// While it lives, this thread runs on one core, and the server's commands on another one, as on two machines.
///
/// Left to itself, the system often puts both on the same core, which is near to the data. Then nobody can read a
/// reply before the server has done all that it does after it.
pub struct Apart {
    #[cfg(target_os = "linux")]
    before: CpuSet,
}

#[cfg(target_os = "linux")]
impl Apart {
    /// `None`: this process may use only one core.
    pub fn begin(server: &Server) -> Result<Option<Self>> {
        let before = sched_getaffinity(None)?;
        // The first one and the last: neighbours may be one core that looks like two.
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| before.is_set(*core));
        let (Some(ours), Some(the_servers)) = (cores.next(), cores.next_back()) else {
            return Ok(None);
        };
        sched_setaffinity(Some(server.pid()), &only(the_servers))?;
        sched_setaffinity(None, &only(ours))?;
        Ok(Some(Self { before }))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Apart {
    fn drop(&mut self) {
        // An error would mean that these cores are gone.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(target_os = "linux")]
fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

#[cfg(not(target_os = "linux"))]
impl Apart {
    /// `None`: the system decides.
    pub fn begin(_: &Server) -> Result<Option<Self>> {
        Ok(None)
    }
}
