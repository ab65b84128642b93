use std::io::{Read, Write};
use std::net::TcpStream;

use crate::server::Server;
use crate::wait::WAIT_TIMEOUT;

const END: &str = "+PONG\r\n";

/// The bytes of the reply to a command. The client library hides differences such as null array or null bulk, map
/// or array. `resp` is 2 or 3.
pub fn reply_bytes(server: &Server, resp: u8, command: &str) -> String {
    let mut stream =
        TcpStream::connect(("127.0.0.1", server.port())).expect("the server accepts connections");
    stream
        .set_read_timeout(Some(WAIT_TIMEOUT))
        .expect("a socket takes a timeout");
    exchange(&mut stream, &format!("HELLO {resp}"));
    exchange(&mut stream, command)
}

/// Sends an inline command, and a PING that marks the end of the reply.
fn exchange(stream: &mut TcpStream, command: &str) -> String {
    stream
        .write_all(format!("{command}\r\nPING\r\n").as_bytes())
        .expect("the server reads");
    let mut reply = Vec::new();
    let mut byte = [0];
    while !reply.ends_with(END.as_bytes()) {
        stream.read_exact(&mut byte).expect("the server answers");
        reply.extend(byte);
    }
    reply.truncate(reply.len() - END.len());
    String::from_utf8(reply).expect("the tests of shapes use plain names")
}
