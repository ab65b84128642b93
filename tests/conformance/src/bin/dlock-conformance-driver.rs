//! The driver of the Rust client: reads commands and writes results as JSON lines. `tests/conformance/README.md` has
//! the protocol.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _};
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use redis::{Cmd, Value as Reply};
use redis_dlock_client::{CancellationToken, Error, Guard, Lock, Locks};
use serde_json::{Value, json};
use tokio::runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::{LocalSet, spawn_local};

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: dlock-conformance-driver redis://HOST:PORT/");
        return ExitCode::from(2);
    };
    let locks = Locks::open(address.as_str()).expect("the kit passes a valid address");
    let runtime = runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("the system has what a runtime needs");
    LocalSet::new().block_on(&runtime, run(Rc::new(Driver::new(locks)), commands()));
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

async fn run(driver: Rc<Driver>, mut commands: UnboundedReceiver<Value>) {
    println!("{}", json!({"driver": "rust", "renews_while_blocked": true}));
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

/// The locks that the kit knows, each by the id of the command that acquired it.
struct Driver {
    locks: Locks,
    waiting: RefCell<BTreeMap<u64, CancellationToken>>,
    held: RefCell<BTreeMap<u64, Rc<Guard>>>,
}

impl Driver {
    fn new(locks: Locks) -> Self {
        Self {
            locks,
            waiting: RefCell::default(),
            held: RefCell::default(),
        }
    }

    /// Begins a command; it answers when it is done.
    fn start(self: Rc<Self>, command: Value) {
        let of = command["of"].as_u64().unwrap_or_default();
        match command["do"].as_str().unwrap_or_default() {
            "acquire" | "try" => {
                // Known before the next command, which may cancel it.
                let cancelled = CancellationToken::new();
                self.waiting.borrow_mut().insert(id(&command), cancelled.clone());
                spawn_local(async move {
                    let result = self.acquire(&command, cancelled).await;
                    answer(&command, result);
                });
            }
            "cancel" => {
                if let Some(cancelled) = self.waiting.borrow().get(&of) {
                    cancelled.cancel();
                }
                answer(&command, json!({"ok": true}));
            }
            "release" => {
                let guard = self.held.borrow_mut().remove(&of);
                spawn_local(async move {
                    let result = release(guard).await;
                    answer(&command, result);
                });
            }
            "state" => answer(&command, state(self.held.borrow().get(&of))),
            "query" => {
                let guard = self.held.borrow().get(&of).cloned();
                spawn_local(async move {
                    let result = query(guard, &command["command"]).await;
                    answer(&command, result);
                });
            }
            "block" => {
                thread::sleep(ms(&command["ms"]));
                answer(&command, json!({"ok": true}));
            }
            _ => answer(&command, json!({"error": "UNKNOWN"})),
        }
    }

    async fn acquire(self: &Rc<Self>, command: &Value, cancelled: CancellationToken) -> Value {
        let id = id(command);
        let lock = self.lock(command);
        let acquiring = async {
            if command["do"] == "try" {
                lock.try_acquire().await
            } else {
                lock.acquire().await.map(Some)
            }
        };
        let outcome = tokio::select! {
            biased;
            () = cancelled.cancelled() => Err(json!({"cancelled": true})),
            outcome = acquiring => Ok(outcome),
        };
        self.waiting.borrow_mut().remove(&id);
        match outcome {
            Err(cancelled) => cancelled,
            Ok(Ok(None) | Err(Error::Timeout { .. })) => json!({"held": false}),
            Ok(Err(error)) => failure(&error),
            Ok(Ok(Some(guard))) => {
                let result = json!({"held": true, "fence": guard.fence()});
                self.keep(id, guard);
                result
            }
        }
    }

    fn lock(&self, command: &Value) -> Lock {
        let key = command["key"].as_str().expect("a lock has a key");
        let mut lock = self.locks.lock(key).lease(ms(&command["lease_ms"]));
        if command["timeout_ms"].is_u64() {
            lock = lock.timeout(ms(&command["timeout_ms"]));
        }
        if command["shared"] == true {
            lock = lock.shared();
        }
        if let Some(limit) = command["limit"].as_u64() {
            lock = lock.limit(u32::try_from(limit).expect("a limit has 31 bits"));
        }
        lock
    }

    /// Keeps a guard until it is released, and tells when its lock is lost before.
    fn keep(self: &Rc<Self>, id: u64, guard: Guard) {
        let (driver, ended) = (Rc::clone(self), guard.token());
        self.held.borrow_mut().insert(id, Rc::new(guard));
        spawn_local(async move {
            ended.cancelled().await;
            if driver.held.borrow().contains_key(&id) {
                println!("{}", json!({"event": "lost", "of": id}));
            }
        });
    }

    /// Gives back everything.
    async fn close(&self) {
        self.waiting.borrow().values().for_each(CancellationToken::cancel);
        self.held.borrow_mut().clear();
        self.locks.shutdown().await;
    }
}

async fn release(guard: Option<Rc<Guard>>) -> Value {
    match guard.map(Rc::try_unwrap) {
        None => json!({"error": "UNKNOWN"}),
        Some(Err(_)) => json!({"error": "INUSE"}),
        Some(Ok(guard)) => match guard.release().await {
            Ok(()) => json!({"released": true}),
            Err(error) => failure(&error),
        },
    }
}

fn state(guard: Option<&Rc<Guard>>) -> Value {
    match guard.map(|guard| (guard.remaining(), guard.fence())) {
        Some((remaining, fence)) if !remaining.is_zero() => {
            json!({"held": true, "remaining_ms": remaining.as_millis() as u64, "fence": fence})
        }
        _ => json!({"held": false, "remaining_ms": 0}),
    }
}

async fn query(guard: Option<Rc<Guard>>, words: &Value) -> Value {
    let Some(guard) = guard else {
        return json!({"error": "UNKNOWN"});
    };
    let mut command = Cmd::new();
    for word in words.as_array().expect("a command is an array") {
        command.arg(word.as_str().expect("words are strings"));
    }
    match guard.query(&command).await {
        Ok(Reply::Nil) => json!({"reply": null}),
        Ok(Reply::Int(number)) => json!({"reply": number}),
        Ok(Reply::Okay) => json!({"reply": "OK"}),
        Ok(Reply::BulkString(bytes)) => json!({"reply": String::from_utf8_lossy(&bytes)}),
        Ok(other) => json!({"reply": format!("{other:?}")}),
        Err(error) => failure(&error),
    }
}

/// The first word of the server's error, as every driver says it.
fn failure(error: &Error) -> Value {
    let word = match error {
        // A release that no reply confirmed may have come too late.
        Error::Lost(_) | Error::Unconfirmed(_) => return json!({"lost": true}),
        Error::Deadlock(_) => "DEADLOCK",
        Error::QueueFull(_) => "QUEUEFULL",
        Error::Grace(_) => "GRACE",
        Error::Evictable(_) => "EVICTABLE",
        Error::ModuleMissing { .. } => "ERR",
        Error::Redis { error, .. } => error.code().unwrap_or("CONNECTION"),
        _ => "INVALID",
    };
    json!({"error": word})
}

fn answer(command: &Value, mut result: Value) {
    result["id"] = command["id"].clone();
    println!("{result}");
}

fn id(command: &Value) -> u64 {
    command["id"].as_u64().expect("a command has an id")
}

fn ms(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().expect("a time in milliseconds"))
}
