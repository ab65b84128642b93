//! `dlock top`: lists the locks that most wait for, again and again, on the whole screen.

mod sampler;
mod view;

use std::io::{IsTerminal, Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use self::sampler::Sampler;
use crate::args::TopArgs;
use crate::exit::Failure;
use crate::server::Target;

/// A shorter interval would put too much load on the servers.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Runs until a signal ends the process. The terminal needs no repair then: its modes are as they were.
pub fn top(args: &TopArgs, target: &Target) -> Result<ExitCode, Failure> {
    if !stdout().is_terminal() {
        return Err(Failure::usage(
            "dlock top needs a terminal: use dlock ls or dlock stats instead",
        ));
    }
    let pattern = args.pattern.as_deref().map(OsStrExt::as_bytes);
    let mut sampler = Sampler::connect(target, pattern)?;
    let mut sample = sampler.sample()?;
    let deployment = target.server_names().join(",");
    loop {
        let screen = view::screen(&deployment, &sample);
        stdout().write_all(screen.as_bytes())?;
        thread::sleep(args.every.max(MIN_INTERVAL));
        match sampler.sample() {
            Ok(next) => sample = next,
            Err(failure) => sample.error = Some(failure.message),
        }
    }
}
