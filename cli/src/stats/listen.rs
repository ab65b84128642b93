//! Serves the Prometheus text format over HTTP, one request at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::exit::{Code, Failure};
use crate::output::eprint_error;

/// A client that sends or reads more slowly than this blocks the others.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REQUEST_BYTES: u64 = 16 * 1024;

/// Serves until the process is terminated. `page` returns the body of the reply.
pub fn serve(address: &str, page: impl Fn() -> String) -> Result<(), Failure> {
    let cannot_listen = |error: io::Error| {
        let message = format!("cannot listen on {address}: {error}: use host:port, such as 127.0.0.1:9738");
        Failure::new(Code::OsError, message)
    };
    let listener = TcpListener::bind(address).map_err(cannot_listen)?;
    let bound = listener.local_addr().map_err(cannot_listen)?;
    eprint_error(&format!("serving http://{bound}/metrics"));
    for stream in listener.incoming() {
        // A client that disconnects needs no reply.
        let _ = stream.and_then(|stream| reply(stream, &page));
    }
    Ok(())
}

fn reply(mut stream: TcpStream, page: &impl Fn() -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut request = BufReader::new(stream.try_clone()?.take(MAX_REQUEST_BYTES)).lines();
    let first = request.next().transpose()?.unwrap_or_default();
    for line in request {
        if line?.is_empty() {
            break;
        }
    }
    let path = first.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let (status, body) = match path {
        Some("/metrics") => ("200 OK", page()),
        Some(_) => ("404 Not Found", "see /metrics\n".to_owned()),
        None => ("405 Method Not Allowed", "use GET\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}
