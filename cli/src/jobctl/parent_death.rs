//! Kills the command when dlock itself is killed, which cannot release the lock then.
//!
//! The kernel sends the signal to a process that asked for it, so dlock starts itself as a helper, which asks and then
//! replaces itself with the command.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::unistd::getppid;

use crate::exit::{Code, Failure};
use crate::output::eprint_error;

/// The first argument of the helper. The second one is the process id of its parent.
const HELPER: &str = "__exec-until-parent-dies";

/// The command that starts `program` by the helper, where the system can start one.
pub fn command(program: &OsStr) -> Command {
    const OWN_PROGRAM: &str = "/proc/self/exe";
    if !Path::new(OWN_PROGRAM).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(OWN_PROGRAM);
    command
        .arg0("dlock")
        .arg(HELPER)
        .arg(std::process::id().to_string())
        .arg(program);
    command
}

/// Becomes the command if this process is the helper.
pub fn exec_if_helper() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    if args.next()? != HELPER {
        return None;
    }
    let (parent, program) = (args.next()?, args.next()?);
    #[cfg(target_os = "linux")]
    // If this fails, the command outlives dlock, as on other systems.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    if OsString::from(getppid().to_string()) != parent {
        // The parent died before.
        return Some(ExitCode::FAILURE);
    }
    let error = Command::new(&program).args(args).exec();
    let failure = cannot_run(&program, &error);
    eprint_error(&failure.message);
    Some(failure.code.into())
}

pub fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::CommandNotFound,
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Code::OsError,
        _ => Code::CommandNotExecutable,
    };
    let program = program.to_string_lossy();
    Failure::new(code, format!("cannot run {program}: {error}"))
}
