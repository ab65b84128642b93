//! The machine that the figures are measured on.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::Command;
use std::{env, fs, thread};

use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::error::Result;
use crate::server::{self, Server};

/// What a reader needs to know to judge the figures of a run.
pub fn environment() -> Result<String> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or(env::consts::ARCH, |model| {
        model.trim_start_matches(['\t', ':', ' '])
    });
    let (server, commit) = (
        server::version()?,
        output("git", &["describe", "--always", "--dirty", "--exclude=*"]),
    );
    let date = output("date", &["+%F"]);
    Ok(format!(
        "{date}, {server}, dlock {} at {commit}, {cores} cores of {model}",
        env!("CARGO_PKG_VERSION")
    ))
}

/// What a program prints, in the directory of this package.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "?".into())
}

/// The CPU time of this process, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The main thread of a server, which serves its clients one after the other.
pub struct MainThread(File);

impl MainThread {
    pub fn of(pid: u32) -> Result<Self> {
        Ok(Self(File::open(format!("/proc/{pid}/schedstat"))?))
    }

    /// The CPU time that it has had, in milliseconds.
    pub fn cpu_ms(&mut self) -> Result<f64> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        let nanos: f64 = text.split(' ').next().unwrap_or_default().parse()?;
        Ok(nanos / 1e6)
    }
}

/// What the hypervisor has withheld from programs that could have run, in seconds since the machine started.
pub fn stolen_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(8));
    ticks.and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / clock_ticks_per_second() as f64
}

/// Pins this thread to one core and the server to another, like two machines, until dropped.
///
/// Otherwise the scheduler often puts both on the same core, and the client cannot read a reply before the server has
/// finished everything it does after writing it.
pub struct PinnedCores(CpuSet);

impl PinnedCores {
    /// `None`: this process may use one core only.
    pub fn pin(server: &Server) -> Result<Option<Self>> {
        let previous = sched_getaffinity(None)?;
        // The first and the last: neighbours may be two hyperthreads of one core.
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| previous.is_set(*core));
        let (Some(client_core), Some(server_core)) = (cores.next(), cores.next_back()) else {
            return Ok(None);
        };
        sched_setaffinity(Pid::from_raw(server.pid().cast_signed()), &only(server_core))?;
        sched_setaffinity(None, &only(client_core))?;
        Ok(Some(Self(previous)))
    }
}

impl Drop for PinnedCores {
    fn drop(&mut self) {
        // Fails only if these cores have been taken offline.
        let _ = sched_setaffinity(None, &self.0);
    }
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}
