//! A minimal HTTP client: one request at a time on a persistent connection.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde_json::Value;

use crate::error::Result;
use crate::interrupt;
use crate::interruptible_stream::InterruptibleStream;

pub struct Http(BufReader<InterruptibleStream>);

impl Http {
    pub fn open(port: u16) -> io::Result<Self> {
        Ok(Self(BufReader::new(InterruptibleStream::connect(port)?)))
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        interrupt::check()?;
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all((head + &body).as_bytes())?;
        let status = self.line()?;
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
        }
        let mut body = vec![0; length.ok_or_else(|| format!("no Content-Length: {status}"))?];
        self.0.read_exact(&mut body)?;
        if status.split(' ').nth(1) == Some("200") {
            Ok(serde_json::from_slice(&body)?)
        } else {
            Err(format!("etcd answered {status}: {}", String::from_utf8_lossy(&body)).into())
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or("etcd closed the connection")?;
        Ok(line.to_owned())
    }
}
