//! Programs that end while they hold a lock. Each is a copy of this one, as `main` of a program of its own.

use std::env;
use std::process::{Command, exit};

use dlock_testkit::Server;
use redis_dlock_client::{Error, Guard, Locks};
use tokio::runtime::Builder;

use crate::support::runtime;

/// Set in the copy: the address of the server, and how it ends.
const ADDRESS: &str = "DLOCK_TEST_EXIT_ADDRESS";
const ENDING: &str = "DLOCK_TEST_EXIT_ENDING";

fn failing_job(guard: Guard) -> Result<(), Error> {
    let _guard = guard;
    Err(Error::Invalid("the job has failed".into()))
}

/// The end of a program with a lock.
fn end(address: &str, ending: &str) {
    let threads = match ending.ends_with("threads") {
        true => Builder::new_multi_thread().enable_all().build(),
        false => Builder::new_current_thread().enable_all().build(),
    };
    let ended = threads.unwrap().block_on(async {
        let locks = Locks::open(address)?;
        let guard = locks.acquire("door").await?;
        if ending.starts_with("exit") {
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
fn program_that_ends_with_a_guard_leaves_no_lock() {
    if let (Ok(address), Ok(ending)) = (env::var(ADDRESS), env::var(ENDING)) {
        return end(&address, &ending);
    }
    let server = Server::start();
    for ending in ["return", "exit", "return with threads", "exit with threads"] {
        for _ in 0..10 {
            let status = Command::new(env::current_exe().unwrap())
                .args(["--exact", "exit::program_that_ends_with_a_guard_leaves_no_lock"])
                .env(ADDRESS, server.url())
                .env(ENDING, ending)
                .output()
                .unwrap()
                .status;
            assert!(status.success(), "{ending}: {status}");
            assert!(server.client().find_lock("door").is_none(), "{ending}");
        }
    }
}

#[test]
fn last_handle_outside_of_async_code_waits_for_its_releases() {
    let server = Server::start();
    let runtime = runtime();
    for n in 0..20 {
        let locks = Locks::open(server.url()).unwrap();
        let guard = runtime.block_on(locks.acquire("door")).unwrap();
        drop(locks);
        drop(guard);
        assert!(server.client().find_lock("door").is_none(), "{n}");
    }
}
