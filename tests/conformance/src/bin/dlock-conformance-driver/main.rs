//! The driver of the Rust client: reads commands and writes results as JSON lines. `tests/conformance/README.md` has
//! the protocol.
//!
//! - `driver`: the commands, and the locks that they are about. `options`: how a lock is asked for.
//! - `many`: the commands that make many locks at once. `outcome`: what is answered, `renewals`: why
//!   leases were not renewed.

mod driver;
mod many;
mod options;
mod outcome;
mod renewals;

use std::io::{self, BufRead as _};
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;

use serde_json::{Value, json};
use tokio::runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::LocalSet;

use driver::Driver;
use outcome::answer;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, address) = match &arguments[..] {
        [kind, address] if kind == "tokio" => ("rust-tokio", address),
        [address] => ("rust", address),
        _ => {
            eprintln!("usage: dlock-conformance-driver [tokio] redis://HOST:PORT/");
            return ExitCode::from(2);
        }
    };
    let mut runtime = runtime::Builder::new_current_thread();
    // Where a runtime has no sockets, the background of the client sends everything.
    if name == "rust-tokio" {
        runtime.enable_all();
    }
    let runtime = runtime.build().expect("the system has what a runtime needs");
    let driver = Rc::new(Driver::new(address));
    LocalSet::new().block_on(&runtime, run(name, driver, commands()));
    ExitCode::SUCCESS
}

/// The commands. A thread reads them, so that the runtime never blocks on the input.
fn commands() -> UnboundedReceiver<Value> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let command = serde_json::from_str(&line).expect("the kit writes JSON");
            if sender.send(command).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn run(name: &str, driver: Rc<Driver>, mut commands: UnboundedReceiver<Value>) {
    println!("{}", json!({"driver": name, "renews_while_blocked": true}));
    while let Some(command) = commands.recv().await {
        if command["do"] == "close" {
            driver.close().await;
            answer(&command, json!({"ok": true}));
            return;
        }
        Rc::clone(&driver).start(command);
    }
    driver.close().await;
}
