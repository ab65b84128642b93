use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The error says what a driver did wrong.
pub type Outcome<T = ()> = Result<T, String>;

/// Polls until there is a value, for as long as the scenario allows. The error says what is waited for.
pub fn within<T>(limit: Duration, mut poll: impl FnMut() -> Result<T, String>) -> Outcome<T> {
    let start = Instant::now();
    loop {
        match poll() {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > limit => {
                return Err(format!("{error}, {} ms later", limit.as_millis()));
            }
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}
