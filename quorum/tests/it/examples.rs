//! The example does what it says.

// Its program is not called here.
#[allow(dead_code)]
#[path = "../../examples/quorum.rs"]
mod quorum;

use dlock_testkit::Server;

#[tokio::test]
async fn example_holds_lock_while_a_majority_is_up() {
    let mut servers: Vec<Server> = (0..3).map(|_| Server::with("dlock.quorum yes")).collect();
    let addresses: Vec<String> = servers.iter().map(Server::url).collect();
    let first = quorum::run(&addresses).await.unwrap();
    servers[0].kill();
    assert!(quorum::run(&addresses).await.unwrap() > first);
    servers[1].kill();
    let refused = quorum::run(&addresses).await.unwrap_err();
    let is_expected = refused.to_string().contains(&servers[1].port().to_string());
    assert!(is_expected, "{refused}");
}
