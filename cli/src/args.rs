//! The command line. The doc comments are the text of `--help` and of the man pages.

// The brackets in the help are not links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::duration;
use crate::exit::Failure;
use crate::jobctl::OnLost;
use crate::text;

// Man pages keep the line breaks of lines that start with a space.
const EXIT_CODES: &str = "\
Exit codes (from sysexits.h where it has one):
    0  success
    1  no such lock, or nothing was broken; doctor: warnings; drill: a fault failed, or no lock was granted after it
    2  doctor: problems; drill: a guarantee was violated
   64  invalid command line, or the server rejected a value in it
   65  the key exists but is not a lock
   69  server unreachable, without the module, or unable to grant locks
   71  operating system error, such as failure to create a process
   74  output cannot be written
   75  run: lock not acquired; try again later
   77  wrong password, or permission denied
   79  run: lock lost, and the command was stopped
  126  run: the command is not executable
  127  run: command not found
  128+ terminated by a signal (128 + its number), as in a shell
       Otherwise `dlock run` exits with the exit code of the command.";

const ENVIRONMENT: &str = "\
Environment:
  DLOCK_URL            URL of the server, as for -u; overridden by -u, -h, -p and -s
  REDISCLI_AUTH        password, if neither -a nor the URL has one
  DLOCK_SENTINEL_AUTH  password of the Sentinels, unless --sentinel-pass is given
  NO_COLOR             disables colors if set and not empty";

/// Run commands under distributed locks, inspect locks, check servers.
///
/// The server is a Redis or Valkey server with the DLOCK module, by default the one at 127.0.0.1:6379. Any node of a
/// cluster can be given to address the whole cluster.
#[derive(Debug, Parser)]
#[command(name = "dlock", version, disable_help_flag = true, after_long_help = format!("{EXIT_CODES}\n\n{ENVIRONMENT}"))]
pub struct Cli {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Print help
    #[arg(long, global = true, action = ArgAction::HelpLong)]
    help: Option<bool>,

    #[command(subcommand)]
    pub action: Action,
}

/// How to reach the server, with the options of redis-cli.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// redis://[user:password@]host[:port][/db], rediss://..., unix:///path,
    /// redis-sentinel://[user:password@]host[:port],.../name[/db], redis-cluster://[user:password@]host[:port],...
    #[arg(short, long, global = true, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    pub url: Option<String>,

    /// Server host name [default: 127.0.0.1]
    #[arg(short, long, global = true)]
    pub host: Option<String>,

    /// Server port [default: 6379]
    #[arg(short, long, global = true)]
    pub port: Option<u16>,

    /// Unix socket, instead of host and port
    #[arg(short, long, global = true, value_name = "PATH", conflicts_with_all = ["host", "port", "tls"])]
    pub socket: Option<PathBuf>,

    /// Password. Visible to other users of this machine: prefer REDISCLI_AUTH
    #[arg(short = 'a', long = "pass", global = true, value_name = "PASSWORD")]
    pub password: Option<String>,

    /// User name [default: the default user]
    #[arg(long, global = true)]
    pub user: Option<String>,

    /// Password of the Sentinels. Visible to other users of this machine: prefer DLOCK_SENTINEL_AUTH
    #[arg(long = "sentinel-pass", global = true, value_name = "PASSWORD")]
    pub sentinel_password: Option<String>,

    /// User name for the Sentinels [default: the default user]
    #[arg(long, global = true, value_name = "USER")]
    pub sentinel_user: Option<String>,

    /// Database number
    #[arg(short = 'n', long = "db", global = true, value_name = "DB")]
    pub database: Option<u32>,

    /// Connect with TLS
    #[arg(long, global = true)]
    pub tls: bool,

    /// CA certificate used to verify the server [default: the system's CA certificates]
    #[arg(long, global = true, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// Client certificate
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// Private key of the client certificate
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
    Drill(DrillArgs),
    Stats(StatsArgs),
    Top(TopArgs),
    /// Print shell completions
    ///
    /// For bash: dlock completions bash > ~/.local/share/bash-completion/completions/dlock
    Completions {
        shell: Shell,
    },
    /// Write the man pages into a directory
    Man {
        directory: PathBuf,
    },
}

/// Run a command under a lock
///
/// Waits for the lock, runs the command, renews the lease while the command runs, and releases the lock when it
/// exits. The command runs in its own process group. HUP, INT, QUIT, TERM, USR1 and USR2 are forwarded to the whole
/// group; on a terminal, the command runs in the foreground, as if started by the shell. Its environment has
/// DLOCK_OWNER and DLOCK_FENCE, the fencing token: send the token with every write, and have the resource reject
/// tokens smaller than the largest it has seen.
///
/// dlock does not wait for processes that the command leaves in the background. Processes that move to another
/// session or process group receive no signals, not even when the lock is lost. A `kill -9` of dlock kills the command
/// on Linux, but not the processes that it has started, and the lock stays held until the lease expires. While dlock is
/// stopped (Ctrl-Z), it does not renew the lease. On a terminal, dlock reports what it waits for after a second.
///
/// Options go before the command. Example, a job that must not run twice: dlock run --try nightly /usr/local/bin/report
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_CODES)]
pub struct RunArgs {
    /// Name of the lock
    #[arg(value_parser = OsStringValueParser::new().try_map(parse_name))]
    pub name: OsString,

    /// Command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Do not wait for the lock, and wait at most 2s for servers
    #[arg(long = "try", conflicts_with = "wait")]
    pub no_wait: bool,

    /// Maximum time to wait for the lock, including connecting: 30s, 1.5s, 500ms, 5m, 2h, 1d; a plain number is seconds
    /// [default: no limit]
    #[arg(long, value_parser = duration::parse_wait, value_name = "TIME")]
    pub wait: Option<Duration>,

    /// Share the lock with any number of other shared holders
    #[arg(long, conflicts_with = "limit")]
    pub shared: bool,

    /// Allow up to N holders at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_147_483_647))]
    pub limit: Option<u32>,

    /// The lease expires this long after its last renewal: others wait this long if this machine crashes
    /// [default: 30s, or the longest lease that the server accepts if that is shorter]
    #[arg(long, value_parser = duration::parse_lease, value_name = "TIME")]
    pub lease: Option<Duration>,

    /// Hold the lock on a majority of these servers: name all servers of the quorum, in the same order everywhere
    #[arg(long, value_name = "URL,URL,URL", value_delimiter = ',', conflicts_with_all = ["limit", "at_least"])]
    pub quorum: Vec<String>,

    /// Print nothing while waiting or if the lock is not acquired
    #[arg(short, long)]
    pub quiet: bool,

    /// Exit code if the lock is not acquired, instead of 75
    #[arg(long, value_name = "N")]
    pub busy_code: Option<u8>,

    /// Release the lock after this time, and treat the command as if the lock were lost
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub max_hold: Option<Duration>,

    /// If the command succeeds, keep the lock until at least this long after the grant: for hosts whose clocks differ. At
    /// most dlock.max-lease-ms of the server
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub at_least: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnLost::Kill)]
    pub on_lost: OnLost,

    /// With `--on-lost term`: send KILL to processes still running after this time
    #[arg(long, value_parser = duration::parse, value_name = "TIME", default_value = "10s")]
    pub kill_after: Duration,
}

/// An unset variable in a script must not lock the empty name.
fn parse_name(name: OsString) -> Result<OsString, &'static str> {
    if name.is_empty() {
        return Err("the name of a lock must not be empty");
    }
    Ok(name)
}

/// List locks
///
/// Lists locks that are held; a released or expired lock may be listed for up to two more seconds. A lock with
/// waiters but no holder, as during a grace period, has no key and is not listed: only the number of such locks is
/// known. `dlock show NAME` shows one.
#[derive(Args, Debug)]
pub struct LsArgs {
    /// Only names that match: * is any text, ? any character, [ab] one of these characters
    pub pattern: Option<OsString>,

    /// Only locks with a holder or a listed waiter whose name starts with OWNER, such as a host name
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<OsString>,

    /// Only locks that a holder has held for longer than TIME
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub held_over: Option<Duration>,

    /// Print a JSON array of the objects that `dlock show --json` prints
    #[arg(long)]
    pub json: bool,
}

/// A lock that may have a binary name.
#[derive(Args, Debug)]
pub struct LockName {
    /// Name of the lock
    name: OsString,

    /// NAME is hexadecimal, as name_hex in JSON
    #[arg(long)]
    hex: bool,
}

impl LockName {
    /// The name in bytes.
    pub fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let name = self.name.as_bytes();
        if !self.hex {
            return Ok(name.to_vec());
        }
        text::from_hex(name)
            .ok_or_else(|| Failure::usage("--hex: the name must be pairs of hexadecimal digits"))
    }
}

/// Show the holders and the queue of a lock
#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub name: LockName,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Forcibly release a lock
///
/// Shows the holders, asks for confirmation, and releases their holds: never those of an owner that got the lock in the
/// meantime. The holders are not stopped: their next DLOCK command fails, but their writes are rejected only by
/// resources that check fencing tokens.
#[derive(Args, Debug)]
pub struct BreakArgs {
    #[command(flatten)]
    pub name: LockName,

    /// Release only the holds of this owner
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<OsString>,

    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

/// Check a deployment and suggest fixes
///
/// Checks versions, persistence, eviction, replicas, grace periods, leases, timers, clocks, the cluster, and the
/// permissions of the user. Changes nothing. Exits with 0 if all is well, 1 on warnings, 2 on problems.
///
/// With several URLs, checks that the servers at these addresses meet the conditions of a quorum.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// All servers of a quorum, instead of one deployment
    #[arg(value_name = "URL")]
    pub quorum: Vec<String>,

    /// Print a JSON array of findings
    #[arg(long)]
    pub json: bool,
}

/// Test a staging deployment under faults of your choice
///
/// Twenty contenders acquire, renew and release eight locks named dlock-drill:..., and record every reply. Meanwhile the
/// commands of --fault run, one after the other, evenly spread over the time. Then the tool reports two holders at a
/// time, fences that did not rise, locks and waiters that were lost, and the longest pause without grants after each
/// fault, with the settings that would change them, and what was not tried. It removes its locks at the end.
///
/// Not for production: a fault stops other clients too, and the contenders add some hundred requests per second.
///
/// Exits with 0 if no guarantee was violated, 2 if one was, and 1 if that says little: a command failed, or no lock was
/// granted after it. A run without violations is no proof.
///
/// Example: dlock -u redis-sentinel://db1,db2/main drill --yes-this-is-staging --fault 'ssh db1 systemctl kill -s KILL valkey'
#[derive(Args, Debug)]
pub struct DrillArgs {
    /// Required: confirms that the deployment may fail
    #[arg(long)]
    pub yes_this_is_staging: bool,

    /// Command for `sh -c`, without a terminal, that injects a fault and repairs what does not recover by itself; may be
    /// repeated
    #[arg(long = "fault", value_name = "COMMAND")]
    pub faults: Vec<String>,

    /// How long contenders run. The end takes a few leases more
    #[arg(long, value_parser = duration::parse_wait, value_name = "TIME", default_value = "10m")]
    pub duration: Duration,

    /// The longest lease of the contenders: use that of your application. Some locks have a tenth of it
    #[arg(long, value_parser = parse_drill_lease, value_name = "TIME", default_value = "5s")]
    pub lease: Duration,

    /// At most so many acquisitions per second, of all contenders together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1000), default_value_t = 200)]
    pub rate: u32,

    /// Also write every request with its reply to this file, as JSON, for other checkers
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// A tenth of it must be long enough for a lease, too.
fn parse_drill_lease(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        lease if lease >= Duration::from_secs(1) => Ok(lease),
        _ => Err("the lease of a drill must be at least 1s".to_owned()),
    }
}

/// Print the counters of the servers
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// Print the Prometheus text format, times in seconds
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,

    /// Print a JSON object, keyed by server
    #[arg(long)]
    pub json: bool,
}

/// Watch locks in a full-screen view
///
/// Keys: q quits, s changes the sort order. `dlock show NAME` shows the waiters of a lock.
///
/// Shows locks that are held, and queues of locks that were held since top started. Other waiters are counted, but
/// servers do not report the names of their locks.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Only names that match, as for `dlock ls`
    pub pattern: Option<OsString>,

    /// Refresh interval
    #[arg(long, value_parser = duration::parse, value_name = "TIME", default_value = "1s")]
    pub every: Duration,
}
