//! The key of a lock in a command to a driver.

use serde_json::{Map, Value};

/// The key as text: bytes that are none are replaced, as in the requests that a proxy records.
pub fn of(command: &Map<String, Value>) -> String {
    let text = |name| command.get(name).and_then(Value::as_str);
    match (text("key"), text("key_hex")) {
        (Some(key), _) => key.to_owned(),
        (None, Some(hex)) => String::from_utf8_lossy(&bytes(hex)).into_owned(),
        (None, None) => String::new(),
    }
}

/// Bytes in hex; digits that are none end them.
pub fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let bytes = digits.map_while(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect()
}
