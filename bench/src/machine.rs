//! What the figures were measured on.

use std::process::Command;
use std::{env, fs, thread};

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::Result;

/// Stands in every result: a figure without its machine says nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    /// How many programs wanted to run during the minute before the start, on average: what else runs here
    /// costs both sides cache and time, but not both alike.
    pub load: String,
    pub server: String,
    pub module: String,
    pub command_line: String,
}

impl Origin {
    /// Of this process. The server and the module as they name themselves.
    pub fn here(server: String, module: String) -> Self {
        let uname = rustix::system::uname();
        Self {
            cpu: cpu_model().unwrap_or_else(|| env::consts::ARCH.into()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            load: load().unwrap_or_else(|| "unknown".into()),
            server,
            module,
            command_line: command_line(env::args()),
        }
    }

    /// Names and what they stand for, in the order in which they are shown.
    pub fn lines(&self) -> [(&'static str, String); 4] {
        [
            (
                "machine",
                format!(
                    "{} cores, {}, {}, load {} before the start",
                    self.cores, self.cpu, self.kernel, self.load
                ),
            ),
            ("server", self.server.clone()),
            ("module", self.module.clone()),
            ("command", self.command_line.clone()),
        ]
    }
}

/// Without the folder that this program happens to be in.
fn command_line(args: impl Iterator<Item = String>) -> String {
    let mut args: Vec<_> = args.collect();
    if let Some(program) = args.first_mut()
        && let Some((_, name)) = program.rsplit_once('/')
    {
        *program = name.to_owned();
    }
    args.join(" ")
}

/// Adds the commit that this is built from, where there is a repository.
pub fn with_commit(version: String) -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude=*"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match git {
        Ok(git) if git.status.success() => {
            format!(
                "{version}, commit {}",
                String::from_utf8_lossy(&git.stdout).trim()
            )
        }
        _ => version,
    }
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

fn load() -> Option<String> {
    let averages = fs::read_to_string("/proc/loadavg").ok()?;
    averages.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::command_line;

    #[test]
    fn the_command_line_names_no_folder_of_the_program() {
        let args = ["/home/me/target/release/dlock-bench", "--out", "docs/bench"];
        assert_eq!(
            command_line(args.map(str::to_owned).into_iter()),
            "dlock-bench --out docs/bench"
        );
    }
}
