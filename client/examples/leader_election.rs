//! One of several processes leads; another one takes over when it is gone.
//!
//! `cargo run -p redis-dlock-client --example leader_election redis://127.0.0.1:7379/ alice`

use std::time::Duration;

use redis_dlock_client::{Error, Guard, Locks, Owner};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("the address of the server");
    let name = args.next().expect("the name of this process");
    let locks = Locks::open(address.as_str())?;
    loop {
        let led = lead(&locks, &name, async |guard| {
            println!("{name} leads under fence {}", guard.fence());
            tokio::time::sleep(Duration::from_secs(3600)).await;
        });
        match led.await {
            Ok(()) => println!("{name} has led"),
            Err(error) if error.is_lost() => println!("{name} leads no more: {error}"),
            // An unavailable server is waited for: other errors are permanent.
            Err(error) => return Err(error),
        }
    }
}

/// Waits until it is this process's turn, and leads until the work is done or the lead is lost.
pub async fn lead<T>(locks: &Locks, name: &str, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
    // The name shows who leads: `DLOCK.OWNER leader`. Alone it would not do: another process of that name would share
    // the lead, and its fence.
    let owner = format!("{name}:{}", Owner::unique());
    let lock = locks.lock("leader").lease(Duration::from_secs(5)).owner(owner);
    // The others stand in the queue, without polling.
    Ok(lock.wait(Duration::MAX).run(work).await?)
}
