//! Makes the picture of `dlock top` in the README: the real tool, on a terminal, watching a busy server.
//!
//! `make top-picture` builds what it needs and runs it.

mod svg;
mod work;

#[allow(dead_code)]
#[path = "../../tests/support/terminal.rs"]
mod terminal;

use std::env;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use dlock_testkit::Server;
use terminal::Terminal;

const ROWS: u16 = 18;
const COLUMNS: u16 = 112;
/// Until the graphs are as wide as their room.
const WATCHED: Duration = Duration::from_secs(18);
/// Enough looks for that.
const EVERY: &str = "500ms";

fn main() {
    let file = env::args_os().nth(1).expect("the file to write");
    let server = Server::start();
    let work = work::Work::start(&server);
    let mut terminal = Terminal::start(&top(&server), ROWS, COLUMNS);
    terminal.wait_for("LOCK");
    // Real time has to pass: the graphs are what happens meanwhile.
    thread::sleep(WATCHED);
    terminal.press("j");
    thread::sleep(Duration::from_secs(1));
    let picture = svg::of(&terminal.screen());
    terminal.press("q");
    terminal.end();
    work.end();
    fs::write(&file, picture).expect("the file can be written");
    println!("top-picture: wrote {}", file.display());
}

/// The tool that cargo built, in the folder above that of this example.
fn top(server: &Server) -> Command {
    let example = env::current_exe().expect("a program knows its own path");
    let tool = example
        .ancestors()
        .nth(2)
        .expect("examples have a folder of their own")
        .join("dlock");
    let mut command = Command::new(tool);
    command.args(["-p", &server.port().to_string(), "top", "--every", EVERY]);
    command
}
