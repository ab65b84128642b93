//! The machine and the versions that the figures were measured with.

use std::ffi::CStr;
use std::process::Command;
use std::{env, fs, thread};

use crate::error::Result;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Part of every result: figures are meaningless without it.
pub struct Environment {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    /// Load average of the minute before the start. Other programs take cache and time from both sides, though not
    /// equally.
    pub load: String,
    pub server: String,
    pub module: String,
    pub command_line: String,
}

impl Environment {
    pub fn detect(server: String, module: String) -> Self {
        let uname = rustix::system::uname();
        Self {
            cpu: cpu_model().unwrap_or_else(|| env::consts::ARCH.into()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: [uname.sysname(), uname.release()]
                .map(CStr::to_string_lossy)
                .join(" "),
            load: load().unwrap_or_else(|| "unknown".into()),
            server,
            module,
            command_line: command_line(env::args()),
        }
    }

    /// Names and values, in display order.
    pub fn rows(&self) -> [(&'static str, String); 4] {
        let Self {
            cores,
            cpu,
            kernel,
            load,
            ..
        } = self;
        let machine = format!("{cores} cores, {cpu}, {kernel}, load {load} before the start");
        [
            ("machine", machine),
            ("server", self.server.clone()),
            ("module", self.module.clone()),
            ("command", self.command_line.clone()),
        ]
    }
}

/// Without the directory of the program.
fn command_line(args: impl Iterator<Item = String>) -> String {
    let mut args: Vec<_> = args.collect();
    if let Some(program) = args.first_mut()
        && let Some((_, name)) = program.rsplit_once('/')
    {
        *program = name.to_owned();
    }
    args.join(" ")
}

/// Adds the commit, if the source is a git repository.
pub fn with_commit(version: String) -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--exclude=*"]);
    let git = git.current_dir(env!("CARGO_MANIFEST_DIR")).output();
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

/// Raises the limit of open files for this process and the servers it starts, as far as the hard limit allows.
/// Returns the new limit.
pub fn allow_open_files(wanted: u64) -> Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// On Linux only.
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
    use super::*;

    impl Environment {
        pub fn example() -> Self {
            Self {
                cpu: "a CPU".into(),
                cores: 2,
                kernel: "Linux 6.1".into(),
                load: "0.10".into(),
                server: "Redis 7.0.15".into(),
                module: "dlock 0.1.0".into(),
                command_line: "dlock-bench --quick".into(),
            }
        }
    }

    #[test]
    fn command_line_of_program_with_path_omits_the_path() {
        let args = ["/home/me/target/release/dlock-bench", "--out", "docs/bench"];
        assert_eq!(
            command_line(args.map(str::to_owned).into_iter()),
            "dlock-bench --out docs/bench"
        );
    }
}
