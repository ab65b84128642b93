//! An axum service that stops in an orderly way: requests are cancelled, and their locks are free before the process
//! ends.
//!
//! `cargo run -p redis-dlock-client --example graceful_shutdown redis://127.0.0.1:7379/`, then
//! `curl --request POST http://127.0.0.1:8080/orders/42`, and press Enter here.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use redis_dlock_client::{CancellationToken, Error, Locks};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

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
pub async fn serve(
    locks: &Locks,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Outcome {
    let stop = CancellationToken::new();
    let service = Router::new()
        .route("/orders/{id}", post(answer))
        .with_state((locks.clone(), stop.clone()));
    let stopping = async move {
        shutdown.await;
        stop.cancel();
    };
    // Returns when all requests are answered.
    axum::serve(listener, service)
        .with_graceful_shutdown(stopping)
        .await?;
    // Their guards were dropped, which releases the locks in the background.
    if timeout(Duration::from_secs(5), locks.settle()).await.is_err() {
        eprintln!("the server is unavailable: the locks are free when their leases expire");
    }
    Ok(())
}

/// Processes an order, unless the service stops first.
async fn answer(
    State((locks, stop)): State<(Locks, CancellationToken)>,
    Path(id): Path<String>,
) -> Result<&'static str, StatusCode> {
    match stop.run_until_cancelled(process(&locks, &id)).await {
        Some(Ok(())) => Ok("done\n"),
        Some(Err(_)) => Err(StatusCode::INTERNAL_SERVER_ERROR),
        None => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn process(locks: &Locks, id: &str) -> Result<(), Error> {
    let guard = locks.acquire(format!("orders:{id}")).await?;
    // The work.
    sleep(Duration::from_secs(10)).await;
    guard.release().await?;
    Ok(())
}
