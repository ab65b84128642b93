//! What a driver uses of its machine.

use std::fs;
use std::time::Duration;

use serde_json::{Map, json};

use crate::driver::Driver;
use crate::outcome::Outcome;

/// A garbage collection takes time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts, after the driver has freed what it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What the language calls a task, as the driver counts it.
    pub tasks: u64,
    pub threads: u64,
    pub sockets: u64,
}

impl Usage {
    pub fn of(driver: &mut Driver) -> Outcome<Self> {
        let id = driver.send(Map::from_iter([("do".to_owned(), json!("resources"))]))?;
        let (_, answer) = driver.answer(id, PATIENCE)?;
        let tasks = answer["tasks"]
            .as_u64()
            .ok_or_else(|| format!("no number of tasks: {answer}"))?;
        Ok(Self {
            tasks,
            threads: threads(driver.process())?,
            sockets: sockets(driver.process())?,
        })
    }

    /// Fails if there is more now than these, and what a step allows to be `more`.
    pub fn check(&self, now: &Self, more: &Self) -> Outcome {
        for (what, before, now, more) in [
            ("tasks", self.tasks, now.tasks, more.tasks),
            ("threads", self.threads, now.threads, more.threads),
            ("sockets", self.sockets, now.sockets, more.sockets),
        ] {
            if now > before + more {
                return Err(format!(
                    "{now} {what}, {before} before, and at most {more} more are expected"
                ));
            }
        }
        Ok(())
    }
}

fn threads(process: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    let threads = threads.and_then(|threads| threads.trim().parse().ok());
    threads.ok_or_else(|| "the system counts no threads".to_owned())
}

fn sockets(process: u32) -> Outcome<u64> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).map_err(|error| error.to_string())?;
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let sockets = targets.filter(|target| target.to_string_lossy().starts_with("socket:"));
    Ok(sockets.count() as u64)
}
