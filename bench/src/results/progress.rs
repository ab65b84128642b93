//! A progress bar on a terminal, nothing elsewhere.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(workloads: usize) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(workloads as u64), target);
        // A template that does not parse leaves the default style.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed_precise}  {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub fn workload(&self, name: &str) {
        self.0.set_message(name.to_owned());
        self.0.tick();
    }

    /// The current step of a workload.
    pub fn step(&self, workload: &str, step: &str) {
        self.0.set_message(format!("{workload}: {step}"));
        self.0.tick();
    }

    /// Counting from zero.
    pub fn round(&self, workload: &str, round: usize, count: usize) {
        self.step(workload, &format!("round {} of {count}", round + 1));
    }

    pub fn workload_done(&self) {
        self.0.inc(1);
    }

    /// Prints to standard output without garbling the bar.
    pub fn print(&self, text: &str) {
        self.0.suspend(|| println!("{text}"));
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
