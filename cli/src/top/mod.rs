//! `dlock top`: a thread looks at the servers, this one draws what it found and listens to keys.

mod sampler;
mod signals;
mod state;
mod view;

use std::io::{IsTerminal, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::sampler::{Look, Sampler};
use self::state::State;
use crate::args::TopArgs;
use crate::exit::{Code, Failure};
use crate::server::Target;

/// So long a new sample may wait to be drawn.
const REFRESH: Duration = Duration::from_millis(50);
/// More often would be a burden for the servers.
const SHORTEST: Duration = Duration::from_millis(50);

pub fn top(args: &TopArgs, target: &Target) -> Result<ExitCode, Failure> {
    if !stdout().is_terminal() {
        return Err(Failure::usage(
            "dlock top needs a terminal: dlock ls and dlock stats do not",
        ));
    }
    let pattern = args.pattern.as_deref().map(OsStrExt::as_bytes);
    // What is wrong with the server is told before the screen is taken.
    let mut sampler = Sampler::connect(target, pattern)?;
    let first = sampler.sample()?;
    let signals = signals::listen().map_err(|error| cannot("catch signals", &error.into()))?;
    let (sender, looks) = channel();
    let every = args.every.max(SHORTEST);
    thread::spawn(move || sampler.run(every, &sender));
    let mut state = State::default();
    state.update(first);
    let mut terminal = ratatui::try_init().map_err(|error| cannot("use the terminal", &error))?;
    let outcome = watch(&mut terminal, &mut state, &looks, &signals);
    let restored = ratatui::try_restore();
    match (outcome, restored) {
        // A terminal that has hung up cannot be restored.
        (Ok(Some(signal)), _) => Ok(ExitCode::from(128 + signal as u8)),
        (Ok(None), Ok(())) => Ok(ExitCode::SUCCESS),
        (Err(error), _) | (_, Err(error)) => Err(cannot("use the terminal", &error)),
    }
}

/// Draws until the user has seen enough, or a signal ends it.
fn watch(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    looks: &Receiver<Look>,
    signals: &Receiver<Signal>,
) -> std::io::Result<Option<Signal>> {
    let mut is_stale = true;
    while !state.is_over() {
        if let Ok(signal) = signals.try_recv() {
            return Ok(Some(signal));
        }
        if is_stale {
            terminal.draw(|frame| view::draw(frame, state))?;
            is_stale = false;
        }
        if event::poll(REFRESH)? {
            is_stale = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                state.press(key);
            }
        }
        for look in looks.try_iter() {
            is_stale = true;
            match look {
                Ok(sample) => state.update(sample),
                Err(failure) => state.fail(failure.message),
            }
        }
    }
    Ok(None)
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::Output, format!("cannot {what}: {error}"))
}
