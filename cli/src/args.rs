//! The command line. What stands here is what the help and the manual show.

// The brackets in the help are no links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::span;

// Manual pages keep the lines that begin with a space.
const EXIT_CODES: &str = "\
Exit codes (those of sysexits.h where there is one):
    0  done, or good
    1  there is no such lock, nothing was broken; doctor: warnings
    2  doctor: problems
   64  the command line is wrong, or the server refuses a value in it
   65  the name is not that of a lock: the key holds something else
   69  no server, a server without the module, or one that refuses
   71  the system refuses, a process for instance
   74  the output cannot be written
   75  run: the lock was not got; try again later
   77  wrong password, or the user may not do this
   79  run: the lock was lost, and the command was stopped
  126  run: the command cannot be run
  127  run: the command is not there
  128+ ended by that signal, as a shell tells it
       Otherwise `dlock run` ends with the exit code of its command.";

const ENVIRONMENT: &str = "\
Environment:
  DLOCK_URL       the server, as with -u; -u, -h, -p and -s win over it
  REDISCLI_AUTH   the password, if neither -a nor the URL has one
  NO_COLOR        no colours, if set and not empty";

/// Run commands under distributed locks, look at locks, check servers.
///
/// The server is a Redis or Valkey with the DLOCK module; by default the one at 127.0.0.1:6379. A server that
/// belongs to a cluster stands for the whole cluster.
#[derive(Debug, Parser)]
#[command(name = "dlock", version, disable_help_flag = true, after_long_help = format!("{EXIT_CODES}\n\n{ENVIRONMENT}"))]
pub struct Cli {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Show what can be said, in full.
    #[arg(long, global = true, action = ArgAction::HelpLong)]
    help: Option<bool>,

    #[command(subcommand)]
    pub action: Action,
}

/// Where the server is, as redis-cli takes it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// redis://[user:password@]host[:port][/db], rediss://..., unix:///path,
    /// redis-sentinel://[user:password@]host[:port],.../name[/db], redis-cluster://[user:password@]host[:port],...
    #[arg(short, long, global = true, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    pub url: Option<String>,

    /// The host [default: 127.0.0.1]
    #[arg(short, long, global = true)]
    pub host: Option<String>,

    /// The port [default: 6379]
    #[arg(short, long, global = true)]
    pub port: Option<u16>,

    /// A unix socket instead of host and port
    #[arg(short, long, global = true, value_name = "PATH", conflicts_with_all = ["host", "port", "tls"])]
    pub socket: Option<PathBuf>,

    /// The password. Other users of this machine can see it: REDISCLI_AUTH is better
    #[arg(short = 'a', long = "pass", global = true, value_name = "PASSWORD")]
    pub password: Option<String>,

    /// The user; without it the password is that of the default user
    #[arg(long, global = true)]
    pub user: Option<String>,

    /// The number of the database
    #[arg(short = 'n', long = "db", global = true, value_name = "DB")]
    pub database: Option<u32>,

    /// Connect with TLS
    #[arg(long, global = true)]
    pub tls: bool,

    /// The certificate of the authority that the server's one is checked by [default: those of the system]
    #[arg(long, global = true, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// The certificate to show to the server
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    Run(RunArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Break(BreakArgs),
    Doctor(DoctorArgs),
    Stats(StatsArgs),
    Top(TopArgs),
    /// Print the completions for a shell
    ///
    /// For bash: dlock completions bash > ~/.local/share/bash-completion/completions/dlock
    Completions {
        shell: Shell,
    },
    /// Write the manual pages into a folder
    Man {
        folder: PathBuf,
    },
}

/// Run a command under a lock
///
/// Waits for the lock, runs the command, renews the lease while it runs, and gives the lock back when it
/// ends. The command runs in a process group of its own. HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to
/// the whole group; on a terminal the command is in the foreground, as if a shell had started it. It finds
/// DLOCK_OWNER and DLOCK_FENCE in its environment: send the fence along with what it writes, and have the
/// resource refuse a smaller one than it has seen.
///
/// What the command leaves in the background is not waited for, and what it starts in a session or a process group of its
/// own gets no signal, not even when the lock is lost. A `kill -9` of dlock itself stops neither the
/// command nor the lease, which then ends unrenewed. While dlock is stopped (Ctrl-Z), it renews nothing.
///
/// Example, a job that must not run twice: dlock run --try nightly -- /usr/local/bin/report
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_CODES)]
pub struct RunArgs {
    /// The lock
    pub name: OsString,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Do not wait for the lock
    #[arg(long = "try", conflicts_with = "wait")]
    pub at_once: bool,

    /// Wait for the lock so long at most: 30s, 1.5s, 500ms, 5m, 2h, 1d; a plain number is seconds [default: no limit]
    #[arg(long, value_parser = span::parse, value_name = "TIME")]
    pub wait: Option<Duration>,

    /// Share the lock with any number of others that share it too
    #[arg(long, conflicts_with = "limit")]
    pub shared: bool,

    /// At most N hold the lock at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_147_483_647))]
    pub limit: Option<u32>,

    /// For how long the lock is held without renewal: others wait so long when this machine dies
    #[arg(long, value_parser = span::parse_lease, value_name = "TIME", default_value = "30s")]
    pub lease: Duration,

    /// The lock is given up after this time, and the command is treated as if the lock was lost
    #[arg(long, value_parser = span::parse, value_name = "TIME")]
    pub max_hold: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnLost::Kill)]
    pub on_lost: OnLost,

    /// With `--on-lost term`: kill what has not ended after this time
    #[arg(long, value_parser = span::parse, value_name = "TIME", default_value = "10s")]
    pub kill_after: Duration,
}

/// What happens to a command whose lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// Kill it at once: others may have the lock by now
    Kill,
    /// Ask it to end (TERM), kill it later
    Term,
    /// Say so, and let it go on
    Ignore,
}

/// List the locks
///
/// A lock shows up while somebody holds it, and up to two seconds longer. One that is only waited for, as in a
/// grace, has no key: servers tell how many of them there are, not their names. `dlock show NAME` finds it.
#[derive(Args, Debug)]
pub struct LsArgs {
    /// Only names like this: * is any text, ? any character, [ab] one of these
    pub pattern: Option<OsString>,

    /// Print a JSON array of the objects that `dlock show --json` prints
    #[arg(long)]
    pub json: bool,
}

/// Show one lock: who holds it, since when, and who waits
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The lock
    pub name: OsString,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Take a lock away from all its holders
///
/// Shows who holds it, asks, and deletes it, unless it has other holders by then. The holders are not stopped:
/// they learn of it by their next command, and what they still write is refused only where fences are checked.
#[derive(Args, Debug)]
pub struct BreakArgs {
    /// The lock
    pub name: OsString,

    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// Check a deployment, and tell how to mend what is wrong
///
/// Looks at versions, persistence, eviction, replicas, graces, leases, timers, clocks, the cluster, and the
/// rights of this user. Changes nothing. Ends with 0 when all is good, 1 with warnings, 2 with problems.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print a JSON array of the findings
    #[arg(long)]
    pub json: bool,
}

/// Print what the servers count
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// Print the text exposition format of Prometheus, times in seconds
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,

    /// Print a JSON object of the servers
    #[arg(long)]
    pub json: bool,
}

/// Watch the locks, full screen
///
/// Keys: q ends, up and down choose, Enter looks into a lock, Esc goes back, s changes the order, / filters,
/// space stops and goes on.
///
/// Shown are locks that somebody holds, and queues whose lock was held since top was started: others are counted
/// as waiting, but servers do not tell their names.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Only names like this, as for `dlock ls`
    pub pattern: Option<OsString>,

    /// How often to look
    #[arg(long, value_parser = span::parse, value_name = "TIME", default_value = "1s")]
    pub every: Duration,
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
