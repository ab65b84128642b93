//! A write that the server refuses once the lock is lost.
//!
//! `cargo run -p redis-dlock-client --example fenced_write redis://127.0.0.1:7379/ "the text"`

use redis_dlock_client::{Error, Guard, Locks, redis};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("the address of the server");
    let text = args.next().expect("the text of the report");
    let locks = Locks::open(address.as_str())?;
    let client = redis::Client::open(address)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let guard = locks.acquire("report:lock").await?;
    write(&guard, &mut connection, &text).await?;
    guard.release().await.map(drop)
}

/// Writes the report, unless the lock is lost.
pub async fn write(
    guard: &Guard,
    connection: &mut redis::aio::MultiplexedConnection,
    text: &str,
) -> Result<(), Error> {
    let set = redis::Cmd::set("report", text);
    let written = guard.fenced(&set).exec_async(connection).await;
    written.map_err(Error::from).inspect_err(|error| {
        if error.is_lost() {
            eprintln!("another holder may be writing the report: {error}");
        }
    })
}
