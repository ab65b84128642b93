//! Programs that end while they hold a lock. Each is a copy of this one, as `main` of a program of its own.

use std::env;
use std::process::{Command, exit};

use redis_dlock_quorum::{Error, Guard};
use tokio::runtime::Builder;

use super::*;

/// Set in the copy: the addresses of the servers, and how it ends.
const ADDRESSES: &str = "DLOCK_TEST_EXIT_ADDRESSES";
const ENDING: &str = "DLOCK_TEST_EXIT_ENDING";

fn failing_job(guard: Guard) -> Result<(), Error> {
    let _guard = guard;
    Err(Error::Invalid("the job has failed".into()))
}

/// The end of a program with a lock.
fn end(addresses: &str, ending: &str) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let locks = Locks::open(addresses.split(' '))?;
        if ending == "give up" {
            let waiting = tokio::time::timeout(ms(300), locks.acquire("gate"));
            assert!(waiting.await.is_err());
            exit(0);
        }
        let guard = locks.acquire("door").await?;
        if ending == "exit" {
            drop(guard);
            exit(0);
        }
        failing_job(guard)
    });
    assert!(ended.is_err());
    // As `main` returns.
    exit(0);
}

#[test]
fn program_that_ends_with_a_quorum_guard_leaves_no_lock() {
    if let (Ok(addresses), Ok(ending)) = (env::var(ADDRESSES), env::var(ENDING)) {
        return end(&addresses, &ending);
    }
    let servers: Vec<Server> = (0..3).map(|_| Server::with("dlock.quorum yes")).collect();
    let addresses = servers.iter().map(Server::url).collect::<Vec<_>>().join(" ");
    // Granted by the first one, and waited for at the others.
    for server in &servers[1..] {
        server.client().acquire("gate somebody 60000");
    }
    for ending in ["return", "exit", "give up"] {
        for _ in 0..5 {
            let status = Command::new(env::current_exe().unwrap())
                .args([
                    "--exact",
                    "exit::program_that_ends_with_a_quorum_guard_leaves_no_lock",
                ])
                .env(ADDRESSES, &addresses)
                .env(ENDING, ending)
                .output()
                .unwrap()
                .status;
            assert!(status.success(), "{ending}: {status}");
            let left = |server: &Server| server.client().owner("door").is_some();
            assert!(!servers.iter().any(left), "{ending}");
            assert_eq!(servers[0].client().owner("gate"), None, "{ending}");
            let waiting = |server: &Server| server.client().waiting("gate");
            assert_eq!(servers[1..].iter().map(waiting).sum::<i64>(), 0, "{ending}");
        }
    }
}

#[test]
fn last_quorum_handle_outside_of_async_code_waits_for_its_releases() {
    let nodes = Nodes::start(3);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for n in 0..20 {
        let locks = nodes.locks();
        let guard = runtime.block_on(async {
            let guard = locks.acquire("door").await.unwrap();
            nodes.until_held("door", 3).await;
            guard
        });
        drop(locks);
        drop(guard);
        assert_eq!(nodes.holders("door"), [""; 0], "{n}");
    }
}
