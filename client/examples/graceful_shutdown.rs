//! A service that stops in an orderly way: requests are aborted, and their locks are free before the process ends.
//!
//! `cargo run -p redis-dlock-client --example graceful_shutdown redis://127.0.0.1:7379/`, then connect to port 8080 with
//! `nc`, and press Enter here. With axum, `axum::serve(..).with_graceful_shutdown(..)` takes the place of the loop.

use std::pin::pin;
use std::time::Duration;

use redis_dlock_client::Locks;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let address = std::env::args().nth(1).expect("the address of the server");
    let locks = Locks::open(address)?;
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    // A real service waits for SIGTERM, with `tokio::signal`.
    let enter = async {
        _ = spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    };
    serve(&locks, listener, enter).await
}

/// Serves until `shutdown` resolves.
pub async fn serve(locks: &Locks, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Outcome {
    let mut requests = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => {
                requests.spawn(handle(locks.clone(), accepted?.0));
            }
            Some(_) = requests.join_next() => {}
        }
    }
    // Drops their guards, which releases the locks in the background.
    requests.shutdown().await;
    if timeout(Duration::from_secs(5), locks.settle()).await.is_err() {
        eprintln!("the server is unavailable: the locks are free when their leases expire");
    }
    Ok(())
}

/// Holds a lock until the client sends something or leaves.
async fn handle(locks: Locks, client: TcpStream) -> Outcome {
    let guard = locks
        .acquire(format!("orders:{}", client.peer_addr()?.port()))
        .await?;
    client.peek(&mut [0]).await?;
    guard.release().await?;
    Ok(())
}
