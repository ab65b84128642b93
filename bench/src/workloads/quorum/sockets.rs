//! What servers and kernel take for a free lock on a majority: the requests of [`DLOCK`](crate::results::DLOCK) over
//! blocking sockets, from one thread, which has read all replies before it acquires the next lock.

use std::time::Instant;

use super::clients::Clients;
use super::majority::REDLOCK;
use crate::error::Result;
use crate::implementations::Client;
use crate::resp::{Connection, Reply};

pub fn open(urls: &[String], keys: &[String]) -> Result<Clients> {
    let client = |key: &String| -> Result<Box<dyn Client>> {
        Ok(Box::new(Sockets {
            connections: urls.iter().map(|url| connect(url)).collect::<Result<_>>()?,
            unread: 0,
            key: key.clone(),
            owner: format!("{:024x}", fastrand::u64(..)),
        }))
    };
    keys.iter().map(client).collect()
}

fn connect(url: &str) -> Result<Connection> {
    let port = url.trim_end_matches('/').rsplit(':').next();
    Ok(Connection::open(port.ok_or("a URL has no port")?.parse()?)?)
}

struct Sockets {
    connections: Vec<Connection>,
    /// How many of them, the last ones, have a reply that was not needed yet.
    unread: usize,
    key: String,
    owner: String,
}

impl Client for Sockets {
    /// The first server, then the others at once.
    fn acquire(&mut self, _end: Instant) -> Result<bool> {
        let mut request = (REDLOCK.acquire)(&self.key, &self.owner);
        let needed = self.connections.len() / 2;
        let (first, others) = self.connections.split_first_mut().ok_or("there is no server")?;
        first.send(&request.get_packed_command())?;
        let fence = fence_of(first.receive()?)?;
        let request = request.arg("MINFENCE").arg(fence).get_packed_command();
        others.iter_mut().try_for_each(|server| server.send(&request))?;
        for server in &mut others[..needed] {
            fence_of(server.receive()?)?;
        }
        self.unread = others.len() - needed;
        Ok(true)
    }

    fn release(&mut self) -> Result<()> {
        let answered = self.connections.len() - std::mem::take(&mut self.unread);
        for server in &mut self.connections[answered..] {
            fence_of(server.receive()?)?;
        }
        let request = (REDLOCK.release)(&self.key, &self.owner).get_packed_command();
        for server in &mut self.connections {
            server.send(&request)?;
        }
        for server in &mut self.connections {
            match server.receive()? {
                Reply::Integer(0) => {}
                reply => return Err(format!("not released: {reply:?}").into()),
            }
        }
        Ok(())
    }

    fn commands(&self) -> Option<u64> {
        None
    }
}

fn fence_of(reply: Reply) -> Result<i64> {
    if let Reply::Array(grant) = &reply
        && let Some(Reply::Integer(fence)) = grant.first()
    {
        return Ok(*fence);
    }
    Err(format!("not granted: {reply:?}").into())
}
