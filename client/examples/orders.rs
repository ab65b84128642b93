//! A web service: one lock for each order, at most 8 payments at once, and a configuration that many read and few change.
//! It counts its locks, and stops in an orderly way.
//!
//! `cargo run -p redis-dlock-client --example orders redis://127.0.0.1:7379/ 8080`, then
//! `curl --request POST http://127.0.0.1:8080/orders/42`, `curl http://127.0.0.1:8080/metrics`, and stop it with SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use redis_dlock_client::{End, Error, Event, EventKind, Locks, Settings};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// How long a request may wait for its locks.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    let server = args.next().expect("the address of the server");
    let port = args.next().expect("a port");
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    serve(&server, listener, async move { _ = terminate.recv().await }).await
}

/// Serves until `shutdown` resolves, and answers what it has begun.
pub async fn serve(
    server: &str,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Outcome {
    let metrics = Arc::new(Metrics::default());
    let counted = Arc::clone(&metrics);
    let locks = Locks::with(
        server,
        Settings::default().on_event(move |event| counted.note(event)),
    )?;
    let service = Router::new()
        .route("/orders/{id}", post(order))
        .route("/config", put(change_config))
        .route("/ready", get(ready))
        .route("/metrics", get(show))
        .with_state((locks.clone(), metrics));
    axum::serve(listener, service)
        .with_graceful_shutdown(shutdown)
        .await?;
    // All guards are dropped: their locks are released in the background.
    timeout(PATIENCE, locks.shutdown()).await?;
    Ok(())
}

type App = State<(Locks, Arc<Metrics>)>;

async fn order(State((locks, _)): App, Path(id): Path<String>) -> Result<String, StatusCode> {
    let placing = locks.lock(format!("orders:{id}")).timeout(PATIENCE);
    let placed = placing.try_run(async |order| {
        let _config = locks.lock("config").shared().timeout(PATIENCE).acquire().await?;
        let _payment = locks
            .lock("payments")
            .limit(8)
            .timeout(PATIENCE)
            .acquire()
            .await?;
        // The payment.
        sleep(Duration::from_millis(20)).await;
        Ok::<_, Error>(format!("order {id} under fence {}\n", order.fence()))
    });
    placed.await.map_err(|error| {
        eprintln!("order {id}: {error}");
        StatusCode::SERVICE_UNAVAILABLE
    })
}

async fn change_config(State((locks, _)): App) -> Result<&'static str, StatusCode> {
    let changing = locks.lock("config").timeout(PATIENCE);
    // Waits until nobody reads it, and those who come later wait for this.
    let changed = changing.run(async |_| sleep(Duration::from_millis(20)).await);
    changed.await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok("changed\n")
}

async fn ready(State((locks, _)): App) -> Result<&'static str, (StatusCode, String)> {
    let unavailable = |error: Error| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
    locks.ping().await.map_err(unavailable)?;
    Ok("ready\n")
}

async fn show(State((_, metrics)): App) -> String {
    let (held, lost) = (&metrics.held, &metrics.lost);
    format!("locks_held {held:?}\nlocks_lost_total {lost:?}\n")
}

#[derive(Default)]
struct Metrics {
    held: AtomicI64,
    lost: AtomicU64,
}

impl Metrics {
    fn note(&self, event: &Event) {
        match &event.kind {
            EventKind::Acquired { .. } => _ = self.held.fetch_add(1, Ordering::Relaxed),
            EventKind::Ended { how, .. } => {
                self.held.fetch_sub(1, Ordering::Relaxed);
                let lost = matches!(how, End::Lost(_)).into();
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}
