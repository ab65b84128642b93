//! The CPU time of the machine, and what its neighbours take of it.
//!
//! A virtual machine shares its cores. While others use them, the time from a release to the next grant is their time,
//! not a lock's.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, hint};

use rustix::param::clock_ticks_per_second;

use crate::error::Result;
use crate::interrupt;

/// Up to this share, the machine is quiet enough for latencies. Ratios of CPU time need no quiet.
pub const MAX_STEAL: f64 = 0.05;
/// How long all cores are kept busy to see what is stolen: 100 ticks on two cores.
const PROBE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_secs(4);

/// How long a run still waits for a quiet machine, in all.
pub struct WaitBudget(Cell<Duration>);

impl WaitBudget {
    pub const fn new(budget: Duration) -> Self {
        Self(Cell::new(budget))
    }

    /// Returns when the machine is quiet, or the budget is used up. At once where the system does not tell.
    pub fn wait_for_quiet(&self) -> Result<()> {
        while !self.is_used_up() && steal_now().is_some_and(|steal| steal > MAX_STEAL) {
            interrupt::check()?;
            thread::sleep(PAUSE);
            self.spend(PROBE + PAUSE);
        }
        Ok(())
    }

    /// What is measured again takes time too.
    pub fn spend(&self, time: Duration) {
        self.0.set(self.0.get().saturating_sub(time));
    }

    pub fn is_used_up(&self) -> bool {
        self.0.get().is_zero()
    }
}

/// It shows only while programs want all cores.
fn steal_now() -> Option<f64> {
    let before = CpuTime::now()?;
    let end = Instant::now() + PROBE;
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while Instant::now() < end {
                    hint::spin_loop();
                }
            });
        }
    });
    Some(CpuTime::now()?.since(before).steal_share())
}

/// The CPU time of the whole machine since it started.
#[derive(Clone, Copy)]
pub struct CpuTime {
    /// What programs have used.
    pub busy: Duration,
    /// What the hypervisor has withheld from programs that could have run.
    pub steal: Duration,
}

impl CpuTime {
    /// `None` where the system does not tell.
    pub fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.split_whitespace().skip(1);
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let [
            user,
            nice,
            system,
            _idle,
            _io_wait,
            interrupts,
            soft_interrupts,
            steal,
            ..,
        ] = ticks[..]
        else {
            return None;
        };
        let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64);
        Some(Self {
            busy: time(user + nice + system + interrupts + soft_interrupts),
            steal: time(steal),
        })
    }

    /// From an earlier time until this one.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// Of the time that programs could have used, what they did not get.
    pub fn steal_share(self) -> f64 {
        let wanted = (self.busy + self.steal).as_secs_f64();
        if wanted > 0.0 {
            self.steal.as_secs_f64() / wanted
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_what_programs_could_have_used() {
        let time = |busy, steal| CpuTime {
            busy: Duration::from_secs(busy),
            steal: Duration::from_secs(steal),
        };
        assert_eq!(time(110, 35).since(time(80, 25)).steal_share(), 0.25);
        assert_eq!(time(80, 25).since(time(80, 25)).steal_share(), 0.0);
    }
}
