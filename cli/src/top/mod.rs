//! `dlock top`: one thread samples the servers, another draws and handles keys.

mod sampler;
mod signals;
mod state;
mod view;

use std::io::{IsTerminal, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::sampler::{SampleResult, Sampler};
use self::state::State;
use crate::args::TopArgs;
use crate::exit::{Code, Failure};
use crate::server::Target;

/// The longest delay before a new sample is drawn.
const REFRESH: Duration = Duration::from_millis(50);
/// Older data is reported as such.
const MIN_SILENCE: Duration = Duration::from_secs(3);
/// A shorter interval would put too much load on the servers.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

pub fn top(args: &TopArgs, target: &Target) -> Result<ExitCode, Failure> {
    if !stdout().is_terminal() {
        return Err(Failure::usage(
            "dlock top needs a terminal: use dlock ls or dlock stats instead",
        ));
    }
    let pattern = args.pattern.as_deref().map(OsStrExt::as_bytes);
    // Report connection failures before switching to the full screen.
    let mut sampler = Sampler::connect(target, pattern)?;
    let first = sampler.sample()?;
    let signals = signals::listen().map_err(|error| terminal_failure("handle signals", &error.into()))?;
    let (sender, results) = channel();
    let every = args.every.max(MIN_INTERVAL);
    thread::spawn(move || sampler.run(every, &sender));
    let mut state = State::new(target.server_names().join(","));
    state.update(first);
    let mut terminal = ratatui::try_init().map_err(|error| terminal_failure("use the terminal", &error))?;
    let outcome = event_loop(&mut terminal, &mut state, &results, &signals, every);
    let restored = ratatui::try_restore();
    match (outcome, restored) {
        // After a hang-up the terminal cannot be restored.
        (Ok(Some(signal)), _) => Ok(ExitCode::from(128 + signal as u8)),
        (Ok(None), Ok(())) => Ok(ExitCode::SUCCESS),
        (Err(error), _) | (_, Err(error)) => Err(terminal_failure("use the terminal", &error)),
    }
}

/// Draws until the user quits or a signal arrives.
fn event_loop(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    results: &Receiver<SampleResult>,
    signals: &Receiver<Signal>,
    every: Duration,
) -> std::io::Result<Option<Signal>> {
    let silence = MIN_SILENCE.max(every * 3);
    let mut last_result = Instant::now();
    let mut needs_redraw = true;
    while !state.should_quit {
        if let Ok(signal) = signals.try_recv() {
            return Ok(Some(signal));
        }
        if needs_redraw {
            terminal.draw(|frame| view::draw(frame, state))?;
            needs_redraw = false;
        }
        if event::poll(REFRESH)? {
            needs_redraw = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                state.on_key(key);
            }
        }
        if last_result.elapsed() > silence {
            let seconds = last_result.elapsed().as_secs();
            state.error = Some(format!("no reply for {seconds} s"));
            needs_redraw = true;
        }
        for result in results.try_iter() {
            last_result = Instant::now();
            needs_redraw = true;
            match result {
                Ok(sample) => state.update(sample),
                Err(failure) => state.error = Some(failure.message),
            }
        }
    }
    Ok(None)
}

fn terminal_failure(action: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::IoError, format!("cannot {action}: {error}"))
}
