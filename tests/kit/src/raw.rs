use std::io::{Read, Write};
use std::net::TcpStream;

use crate::connection::packed;
use crate::server::Server;
use crate::wait::WAIT_TIMEOUT;

const BEGIN: &str = "$5\r\nbegin\r\n";
const END: &str = "$3\r\nend\r\n";

/// The bytes of the reply to a command, or of the replies to lines of commands. The client library hides differences such as null array or null bulk, map
/// or array. `resp` is 2 or 3.
pub fn reply_bytes(server: &Server, resp: u8, command: &str) -> String {
    bytes_of_replies(server.port(), resp, &command.split("\r\n").collect::<Vec<_>>())
}

/// As [`reply_bytes`], for commands that are sent at once to any server.
pub fn bytes_of_replies(port: u16, resp: u8, commands: &[&str]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts connections");
    stream
        .set_read_timeout(Some(WAIT_TIMEOUT))
        .expect("a socket takes a timeout");
    // The reply to HELLO tells about the program.
    let hello = format!("HELLO {resp}");
    for command in [&[hello.as_str(), "PING begin"], commands, &["PING end"]].concat() {
        let words: Vec<&str> = command.split(' ').collect();
        stream.write_all(&packed(&words)).expect("the server reads");
    }
    let mut replies = Vec::new();
    while !replies.ends_with(END.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the server answers");
        replies.extend(byte);
    }
    let replies = String::from_utf8(replies).expect("the tests of shapes use plain names");
    let (_, replies) = replies.split_once(BEGIN).expect("a reply to PING");
    replies.trim_end_matches(END).to_owned()
}
