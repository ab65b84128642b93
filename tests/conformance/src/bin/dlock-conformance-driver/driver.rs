//! The commands, and the locks that they are about.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClient, SentinelServerType};
use redis::{Cmd, Value as Reply};
use redis_dlock_client::{CancellationToken, Error, Event, EventKind, Guard, Locks, Owner, Settings};
use serde_json::{Value, json};
use tokio::task::spawn_local;

use crate::many::{Many, churn};
use crate::options;
use crate::outcome::{answer, failure, lost, not_acquired, skipped};
use crate::renewals::Renewals;

/// That of the other libraries. The default of 1 s is too short for a first connection where many drivers start at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// The locks of a server, of a cluster, or of the primary `main` that a Sentinel knows.
fn locks_at(address: &str, settings: Settings) -> Result<Locks, Error> {
    match address.split_once("://") {
        Some(("redis+cluster", place)) => {
            Locks::with(ClusterClient::new([format!("redis://{place}")])?, settings)
        }
        Some(("redis+sentinel", place)) => {
            let sentinels = vec![format!("redis://{place}")];
            let role = SentinelServerType::Master;
            Locks::with(
                SentinelClient::build(sentinels, String::from("main"), None, role)?,
                settings,
            )
        }
        _ => Locks::with(address, settings),
    }
}

fn tell_waiting(event: &Event) {
    if let EventKind::StillWaiting { holder, waited } = &event.kind {
        let (key, holder) = (
            String::from_utf8_lossy(&event.key),
            holder.as_ref().map(Owner::to_string),
        );
        let waited_ms = waited.as_millis() as u64;
        println!(
            "{}",
            json!({"event": "waiting", "key": key, "holder": holder, "waited_ms": waited_ms})
        );
    }
}

/// The locks that the kit knows, each by the id of the command that acquired it.
pub struct Driver {
    address: String,
    locks: Locks,
    renewals: Renewals,
    waiting: RefCell<BTreeMap<u64, CancellationToken>>,
    held: RefCell<BTreeMap<u64, Rc<Guard>>>,
    many: RefCell<Many>,
}

impl Driver {
    pub fn new(address: &str) -> Self {
        let renewals = Renewals::default();
        let settings = Settings::default().response_timeout(PATIENCE).on_event({
            let renewals = renewals.clone();
            move |event| {
                renewals.on_event(event);
                tell_waiting(event);
            }
        });
        Self {
            address: address.to_owned(),
            locks: locks_at(address, settings).expect("the kit passes a valid address"),
            renewals,
            waiting: RefCell::default(),
            held: RefCell::default(),
            many: RefCell::default(),
        }
    }

    /// Begins a command; it answers when it is done.
    pub fn start(self: Rc<Self>, command: Value) {
        let of = command["of"].as_u64().unwrap_or_default();
        match command["do"].as_str().unwrap_or_default() {
            // Known before the next command, which may cancel it.
            "acquire" | "try" => {
                let cancelled = CancellationToken::new();
                self.waiting.borrow_mut().insert(id(&command), cancelled.clone());
                spawn_local(async move { answer(&command, self.acquire(&command, cancelled).await) });
            }
            "cancel" => {
                if let Some(cancelled) = self.waiting.borrow().get(&of) {
                    cancelled.cancel();
                }
                answer(&command, json!({"ok": true}));
            }
            // No longer held when the next command comes.
            "release" => {
                let guard = self.held.borrow_mut().remove(&of);
                spawn_local(async move { answer(&command, release(guard).await) });
            }
            "state" => answer(&command, state(self.held.borrow().get(&of))),
            "block" => {
                thread::sleep(options::time(&command["ms"]).expect("a time in milliseconds"));
                answer(&command, json!({"ok": true}));
            }
            "resources" => answer(&command, json!({"tasks": 0})),
            _ => _ = spawn_local(async move { answer(&command, self.run(&command, of).await) }),
        }
    }

    /// Carries out a command that takes time, and that no other depends on.
    async fn run(&self, command: &Value, of: u64) -> Value {
        let guard = self.held.borrow().get(&of).cloned();
        match command["do"].as_str().unwrap_or_default() {
            "query" => query(guard, &command["command"]).await,
            "extend" => extend(guard, &command["lease_ms"]).await,
            "churn" => churn(&self.address, command).await,
            "hold_many" => {
                let (many, held) = Many::hold(&self.locks, command).await;
                self.many.replace(many);
                held
            }
            "release_many" => {
                let many = self.many.take();
                many.release().await
            }
            _ => json!({"error": "UNKNOWN"}),
        }
    }

    async fn acquire(self: &Rc<Self>, command: &Value, cancelled: CancellationToken) -> Value {
        let Some(lock) = options::lock(&self.locks, command) else {
            return skipped();
        };
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
        self.waiting.borrow_mut().remove(&id(command));
        match outcome {
            Err(cancelled) => cancelled,
            Ok(Ok(None)) => json!({"held": false, "because": "TAKEN"}),
            Ok(Err(error)) => not_acquired(&error),
            Ok(Ok(Some(guard))) => {
                if command["renew"] == false {
                    guard.stop_renewing();
                }
                let result = json!({"held": true, "fence": guard.fence()});
                self.keep(id(command), guard);
                result
            }
        }
    }

    /// Keeps a guard until it is released, and tells when its lock is lost before.
    fn keep(self: &Rc<Self>, id: u64, guard: Guard) {
        let (driver, ended) = (Rc::clone(self), guard.token());
        self.held.borrow_mut().insert(id, Rc::new(guard));
        spawn_local(async move {
            ended.cancelled().await;
            let Some(guard) = driver.held.borrow().get(&id).cloned() else {
                return;
            };
            if let Some(why) = guard.lost_now() {
                println!("{}", lost(id, why, driver.renewals.last_error(guard.owner())));
            }
        });
    }

    /// Gives back everything.
    pub async fn close(&self) {
        self.waiting.borrow().values().for_each(CancellationToken::cancel);
        self.held.borrow_mut().clear();
        self.many.take();
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

async fn extend(guard: Option<Rc<Guard>>, lease: &Value) -> Value {
    match (guard, options::time(lease)) {
        (None, _) => json!({"error": "UNKNOWN"}),
        (_, None) => skipped(),
        (Some(guard), Some(lease)) => match guard.extend(lease).await {
            Ok(_) => json!({"extended": true}),
            Err(error) => failure(&error),
        },
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

fn id(command: &Value) -> u64 {
    command["id"].as_u64().expect("a command has an id")
}
