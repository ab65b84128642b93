//! An error ends the run: it is shown, and all servers are stopped.

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
