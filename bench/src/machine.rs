//! What the figures were measured on.

use std::{fs, thread};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::Result;

/// The load too: what else runs here costs both sides cache and time, but not both alike.
pub fn describe() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cpu = cpu_model().unwrap_or_else(|| std::env::consts::ARCH.into());
    let load = load().map_or(String::new(), |load| format!(", load {load} before the start"));
    format!("{cores} cores, {cpu}{load}")
}

/// Lets this process, and the servers it starts from now on, have so many open files, or as many as it may
/// allow itself. Returns how many there can be.
pub fn allow_open_files(wanted: u64) -> Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Linux tells it; elsewhere the architecture has to do.
fn cpu_model() -> Option<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpus.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

/// How many programs wanted to run during the last minute, on average.
fn load() -> Option<String> {
    let averages = fs::read_to_string("/proc/loadavg").ok()?;
    averages.split(' ').next().map(str::to_owned)
}
