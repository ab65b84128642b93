//! How far the run is: a bar on the terminal, nothing where there is none.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub struct Progress(ProgressBar);

impl Progress {
    /// For so many works.
    pub fn new(works: usize) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(works as u64), target);
        // A template that does not parse shows the plain bar.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed_precise}  {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub fn work(&self, name: &str) {
        self.0.set_message(name.to_owned());
        self.0.tick();
    }

    /// What a work does now.
    pub fn step(&self, work: &str, step: &str) {
        self.0.set_message(format!("{work}: {step}"));
        self.0.tick();
    }

    pub fn work_done(&self) {
        self.0.inc(1);
    }

    /// Prints to the standard output, not through the bar.
    pub fn print(&self, text: &str) {
        self.0.suspend(|| println!("{text}"));
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
