//! The server for tests beside a real server with the module: the same commands get the same bytes. `tests/rules` plays
//! its rules on both.

use dlock_testkit::{Server, bytes_of_replies};
use redis_dlock_client::testing::TestServer;

/// The bytes of the replies to commands, with all numbers masked.
fn masked_replies(url: &str, resp: u8, commands: &[&str]) -> String {
    let (_, port) = url.rsplit_once(':').expect("an address with a port");
    let replies = bytes_of_replies(port.parse().expect("a port"), resp, commands);
    let lines = replies
        .lines()
        .map(|line| if line.starts_with(':') { ":n" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn replies_have_the_bytes_of_a_real_server() {
    let (real, own) = (Server::start(), TestServer::start());
    let commands = [
        "DLOCK.OWNER k",
        "DLOCK.INFO k",
        "DLOCK.GRANTS box 0 TTL 60000",
        "DLOCK.ACQUIRE k alice 30000",
        "DLOCK.ACQUIRE k bob 30000",
        "DLOCK.ACQUIRE k bob 30000 BLOCK 1",
        "DLOCK.ACQUIRE k bob 30000 QUEUE box 1000 REQID r",
        "DLOCK.OWNER k",
        "DLOCK.INFO k",
        "DLOCK.EXTEND k alice 40000",
        "DLOCK.RELEASE k bob REQID r",
        "DLOCK.RELEASE k bob",
        "DLOCK.RELEASE k alice",
        "DLOCK.RELEASE k",
        "DLOCK.GUARD k alice 1 GET text",
        "DLOCK.GUARD k alice 1 SELECT 1",
        "dlock.nothing a b",
        "GET none",
        "SET text 1",
        "GET text",
        "INCR text",
        "INCR text 2",
        "SET word w",
        "INCR word",
        "DLOCK.OWNER text",
        "DLOCK.INFO text",
        "EXISTS text text none",
        "DEL text none",
        "SELECT 1",
        "SELECT 16",
        "SELECT x",
        "CLIENT SETNAME n",
        "PING",
        "PING a b",
    ];
    let (own, real) = (own.url(), format!("redis://127.0.0.1:{}", real.port()));
    for resp in [2, 3] {
        let [own, real] = [&own, &real].map(|url| masked_replies(url, resp, &commands));
        assert_eq!(own, real, "RESP{resp}");
    }
}
