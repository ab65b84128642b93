//! A job that is scheduled on every host and runs on one of them.
//!
//! `cargo run -p redis-dlock-client --example cron_job redis://127.0.0.1:7379/ 2026-01-01T00`

use std::time::Duration;

use redis_dlock_client::{Acquire, Error, Owner};

/// How late a host may start the job.
const LATENESS: Duration = Duration::from_secs(600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("the address of the server");
    let hour = args.next().expect("the hour whose job is due");
    let is_mine = run(&address, &hour, async || println!("doing the job")).await?;
    println!("{}", if is_mine { "done here" } else { "done elsewhere" });
    Ok(())
}

/// Runs the job of an hour unless another host runs it or has run it.
pub async fn run(address: &str, hour: &str, job: impl AsyncFnOnce()) -> Result<bool, Error> {
    let mut connection = redis::Client::open(address)?
        .get_multiplexed_async_connection()
        .await?;
    // A lock that is never released: hosts that start late find it held until its lease expires.
    let request = Acquire::new(format!("nightly:{hour}"), Owner::unique(), LATENESS);
    let is_mine = request.query_async(&mut connection).await?.is_some();
    if is_mine {
        job().await;
    }
    Ok(is_mine)
}
