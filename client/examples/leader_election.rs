//! One of several processes leads; another one takes over when it is gone.
//!
//! `cargo run -p redis-dlock-client --example leader_election redis://127.0.0.1:7379/ alice`

use std::time::Duration;

use redis_dlock_client::{Error, Guard, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let address = args.next().expect("the address of the server");
    let name = args.next().expect("the name of this process");
    loop {
        let led = lead(&address, &name, async |guard| {
            println!("{name} leads under fence {}", guard.fence());
            tokio::time::sleep(Duration::from_secs(3600)).await;
        });
        if let Err(error) = led.await {
            println!("{name} leads no more: {error}");
        }
    }
}

/// Waits until it is this process's turn, and leads until the work is done or the lead is lost.
pub async fn lead<T>(address: &str, name: &str, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
    let locks = Locks::open(address)?;
    // The name shows who leads: `DLOCK.OWNER leader`. The others stand in the queue, without polling.
    let lock = locks.lock("leader").lease(Duration::from_secs(5)).owned_by(name);
    lock.wait(Duration::MAX).run(work).await
}
