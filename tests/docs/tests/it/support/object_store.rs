//! A fake object store: one object, PUT with `If-Match` and `If-None-Match`, GET, HEAD.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// The object with the ETag of its version.
struct Object {
    etag: String,
    fence: String,
    body: Vec<u8>,
}

/// The parts of a request that the store uses.
#[derive(Default)]
struct Request {
    method: String,
    if_match: Option<String>,
    if_none_match: Option<String>,
    fence: String,
    body: Vec<u8>,
}

/// Starts a store that lives as long as the test process. Returns its port.
pub fn start() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the system has a free port");
    let port = listener.local_addr().expect("a bound socket has an address");
    let port = port.port();
    thread::spawn(move || {
        let mut object = None;
        let mut version = 0;
        for stream in listener.incoming().flatten() {
            // An error means that the client has disconnected.
            let _ = serve(&stream, &mut object, &mut version);
        }
    });
    port
}

fn serve(mut stream: &TcpStream, object: &mut Option<Object>, version: &mut u64) -> std::io::Result<()> {
    let request = read(stream)?;
    let status = match request.method.as_str() {
        "PUT" if !precondition_holds(&request, object.as_ref()) => "412 Precondition Failed",
        "PUT" => {
            *version += 1;
            *object = Some(Object {
                etag: format!("\"version-{version}\""),
                fence: request.fence,
                body: request.body,
            });
            "200 OK"
        }
        _ if object.is_none() => "404 Not Found",
        _ => "200 OK",
    };
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    let Some(object) = object.as_ref().filter(|_| status == "200 OK") else {
        return write!(stream, "{head}Content-Length: 0\r\n\r\n");
    };
    let (etag, fence) = (&object.etag, &object.fence);
    let body: &[u8] = if request.method == "GET" {
        &object.body
    } else {
        &[]
    };
    let length = body.len();
    write!(
        stream,
        "{head}ETag: {etag}\r\nx-amz-meta-fence: {fence}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)
}

fn precondition_holds(request: &Request, object: Option<&Object>) -> bool {
    let etag = object.map(|object| &object.etag);
    let matches = request.if_match.is_none() || request.if_match.as_ref() == etag;
    matches && (request.if_none_match.is_none() || etag.is_none())
}

fn read(stream: &TcpStream) -> std::io::Result<Request> {
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let mut request = Request {
        method: line.split(' ').next().unwrap_or_default().to_owned(),
        ..Request::default()
    };
    let mut length = 0;
    loop {
        line.clear();
        input.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "if-match" => request.if_match = Some(value.to_owned()),
            "if-none-match" => request.if_none_match = Some(value.to_owned()),
            "x-amz-meta-fence" => request.fence = value.to_owned(),
            "content-length" => length = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    request.body.resize(length, 0);
    input.read_exact(&mut request.body)?;
    Ok(request)
}
