//! Errors end the run; they are only printed.

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
