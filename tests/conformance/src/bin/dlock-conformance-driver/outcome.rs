//! What is answered: the words that every driver uses for an outcome.

use redis_dlock_client::{Error, Lost};
use serde_json::{Value, json};

/// Of a value that the types of Rust do not have.
pub fn skipped() -> Value {
    json!({"skipped": true})
}

/// Of an acquisition that failed.
pub fn not_acquired(error: &Error) -> Value {
    match error {
        Error::Timeout { last, .. } => {
            let because = last.as_deref().map_or("TAKEN", word);
            json!({"held": false, "because": because})
        }
        error => failure(error),
    }
}

pub fn failure(error: &Error) -> Value {
    match error {
        Error::Lost(lost) => json!({"lost": true, "because": reason(*lost)}),
        // A release that no reply confirmed may have come too late.
        Error::Unconfirmed(_) => json!({"lost": true, "because": "UNCONFIRMED"}),
        error => json!({"error": word(error)}),
    }
}

/// The event of a loss. `last` is the word of the last renewal, if it failed.
pub fn lost(id: u64, lost: Lost, last: Option<String>) -> Value {
    let mut event = json!({"event": "lost", "of": id, "because": reason(lost)});
    if let Some(last) = last.filter(|_| lost == Lost::LeaseExpired) {
        event["last"] = json!(last);
    }
    event
}

/// Why a lock is lost.
fn reason(lost: Lost) -> &'static str {
    match lost {
        Lost::LeaseExpired => "EXPIRED",
        Lost::MaxHold => "MAXHOLD",
        Lost::NotHeld => "NOTHELD",
        Lost::NotOwner => "NOTOWNER",
        Lost::Stale => "STALE",
        Lost::WrongType => "WRONGTYPE",
        _ => "UNKNOWN",
    }
}

/// The first word of the server's error.
pub fn word(error: &Error) -> &str {
    match error {
        Error::Lost(lost) => reason(*lost),
        Error::Deadlock(_) => "DEADLOCK",
        Error::QueueFull(_) => "QUEUEFULL",
        Error::Grace(_) => "GRACE",
        Error::Evictable(_) => "EVICTABLE",
        Error::ModuleMissing { .. } => "ERR",
        Error::Invalid(_) => "ARGUMENT",
        Error::Redis { .. } => error.code().unwrap_or("CONNECTION"),
        _ => "UNKNOWN",
    }
}

pub fn answer(command: &Value, mut result: Value) {
    result["id"] = command["id"].clone();
    println!("{result}");
}
