//! The bad network of the tests does what it says: other tests rely on it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::{Proxy, Rejection, Way, packed, wait_for};

/// Both ends of a connection through the proxy.
struct Ends {
    proxy: Proxy,
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl Ends {
    fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap().port());
        let client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        let server = listener.accept().unwrap().0;
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        Self {
            proxy,
            listener,
            client,
            server,
        }
    }
}

fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    stream.read_exact(&mut buffer).unwrap();
    buffer
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut buffer = Vec::new();
    let _ = stream.read_to_end(&mut buffer);
    buffer
}

#[test]
fn proxy_cuts_after_exact_number_of_bytes() {
    for bytes in [0, 1, 5, 6] {
        let mut ends = Ends::new();
        ends.proxy.cut_after(Way::ToClient, bytes);
        ends.client.write_all(b"question").unwrap();
        assert_eq!(read(&mut ends.server, 8), b"question");
        ends.server.write_all(b"answer").unwrap();
        assert_eq!(rest(&mut ends.client), &b"answer"[..bytes]);
        assert!(!ends.proxy.will_cut());
        assert_eq!(rest(&mut ends.server), b"");
        wait_for("no connection", || ends.proxy.connections() == 0);
        // The next one passes.
        let mut client = TcpStream::connect(("127.0.0.1", ends.proxy.port())).unwrap();
        let mut server = ends.listener.accept().unwrap().0;
        server.write_all(b"again").unwrap();
        assert_eq!(read(&mut client, 5), b"again");
    }
}

#[test]
fn frozen_bytes_arrive_after_thaw_or_never() {
    let mut ends = Ends::new();
    ends.proxy.freeze(Way::ToServer);
    ends.client.write_all(b"question").unwrap();
    ends.server.write_all(b"news").unwrap();
    assert_eq!(read(&mut ends.client, 4), b"news");
    ends.server.set_nonblocking(true).unwrap();
    assert!(ends.server.read(&mut [0]).is_err());
    ends.server.set_nonblocking(false).unwrap();
    ends.proxy.thaw();
    assert_eq!(read(&mut ends.server, 8), b"question");
    ends.proxy.freeze(Way::ToServer);
    ends.client.write_all(b"question").unwrap();
    ends.proxy.cut();
    ends.proxy.thaw();
    assert_eq!(rest(&mut ends.server), b"");
}

#[test]
fn proxy_delays_and_refuses() {
    let mut ends = Ends::new();
    ends.proxy.delay(Way::ToServer, Duration::from_millis(100));
    let start = Instant::now();
    ends.client.write_all(b"question").unwrap();
    assert_eq!(read(&mut ends.server, 8), b"question");
    assert!(start.elapsed() >= Duration::from_millis(100));
    ends.proxy.refuse(true);
    let mut refused = TcpStream::connect(("127.0.0.1", ends.proxy.port())).unwrap();
    assert_eq!(rest(&mut refused), b"");
    assert_eq!(ends.proxy.connections(), 1);
}

#[test]
fn delayed_bytes_do_not_delay_those_behind_them() {
    let mut ends = Ends::new();
    ends.proxy.delay(Way::ToServer, Duration::from_millis(300));
    let start = Instant::now();
    for _ in 0..20 {
        ends.client.write_all(b"question").unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read(&mut ends.server, 160), b"question".repeat(20));
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "6 s one after the other"
    );
}

#[test]
fn stranded_connections_are_dead_and_new_ones_work() {
    let mut ends = Ends::new();
    // Once something has passed, the proxy knows of the connection.
    ends.client.write_all(b"first").unwrap();
    assert_eq!(read(&mut ends.server, 5), b"first");
    ends.proxy.strand();
    ends.client.write_all(b"lost").unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", ends.proxy.port())).unwrap();
    let mut server = ends.listener.accept().unwrap().0;
    client.write_all(b"passes").unwrap();
    assert_eq!(read(&mut server, 6), b"passes");
    ends.proxy.cut();
    assert_eq!(rest(&mut ends.server), b"");
}

#[test]
fn reply_to_matching_request_is_lost_after_its_request_arrived() {
    let mut ends = Ends::new();
    ends.proxy.lose_replies_to("ACQUIRE", 1);
    ends.client.write_all(b"another").unwrap();
    assert_eq!(read(&mut ends.server, 7), b"another");
    ends.server.write_all(b"reply").unwrap();
    assert_eq!(read(&mut ends.client, 5), b"reply");
    ends.client.write_all(b"dlock.acquire door").unwrap();
    assert_eq!(read(&mut ends.server, 18), b"dlock.acquire door");
    assert_eq!((ends.proxy.replies_to_lose(), ends.proxy.connections()), (0, 1));
    ends.server.write_all(b"granted").unwrap();
    assert_eq!(rest(&mut ends.client), b"");
    assert_eq!(rest(&mut ends.server), b"");
}

#[test]
fn stranded_request_arrives_late() {
    let mut ends = Ends::new();
    ends.proxy.strand_request("ACQUIRE");
    ends.client.write_all(b"first").unwrap();
    assert_eq!(read(&mut ends.server, 5), b"first");
    ends.client.write_all(b"dlock.acquire door").unwrap();
    wait_for("the request", || !ends.proxy.will_strand());
    let mut client = TcpStream::connect(("127.0.0.1", ends.proxy.port())).unwrap();
    client.write_all(b"acquire again").unwrap();
    assert_eq!(read(&mut ends.listener.accept().unwrap().0, 13), b"acquire again");
    ends.client.shutdown(Shutdown::Both).unwrap();
    ends.server.set_nonblocking(true).unwrap();
    assert!(ends.server.read(&mut [0]).is_err());
    ends.server.set_nonblocking(false).unwrap();
    ends.proxy.deliver_late();
    assert_eq!(rest(&mut ends.server), b"dlock.acquire door");
}

#[test]
fn matching_reply_is_lost() {
    let mut ends = Ends::new();
    ends.proxy.lose_replies_with("granted", 1);
    ends.server.write_all(b"nothing").unwrap();
    assert_eq!(read(&mut ends.client, 7), b"nothing");
    ends.server.write_all(b"granted").unwrap();
    assert_eq!(rest(&mut ends.client), b"");
    assert_eq!(ends.proxy.replies_to_lose(), 0);
}

#[test]
fn chosen_requests_are_rejected_among_others() {
    let mut ends = Ends::new();
    ends.proxy.reject(Rejection {
        command: "DLOCK.ACQUIRE".into(),
        key: "door".into(),
        error: "BUSY says the test".into(),
        times: 1,
    });
    let [chosen, other] = ["door", "gate"].map(|key| packed(&["dlock.acquire", key]));
    let script = packed(&[
        "EVAL",
        "return redis.error_reply(ARGV[1])",
        "0",
        "BUSY says the test",
    ]);
    let (sent, expected) = (
        [&*other, &chosen, &other, &chosen].concat(),
        [&*other, &script, &other, &chosen].concat(),
    );
    // The second piece ends the request that the first one begins.
    let (first, second) = sent.split_at(other.len() + 7);
    ends.client.write_all(first).unwrap();
    ends.client.write_all(second).unwrap();
    assert_eq!(read(&mut ends.server, expected.len()), expected);
    assert_eq!(ends.proxy.rejections(), (1, 0));
}

#[test]
fn request_that_breaks_off_arrives_as_far_as_it_was_sent() {
    let mut ends = Ends::new();
    let request = packed(&["dlock.acquire", "door"]);
    let part = &request[..request.len() - 4];
    ends.client.write_all(part).unwrap();
    ends.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut ends.server), part);
}
