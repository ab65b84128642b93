use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Client, Cmd, Connection, ConnectionAddr, FromRedisValue, RedisError, RedisResult, Value, cmd};
use redis_dlock_client::Error;

use crate::exit::{Code, Failure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to one server.
pub struct Node {
    /// `host:port`, or the path of the socket.
    pub name: String,
    pub address: ConnectionAddr,
    pub connection: Connection,
}

/// Whether a command is refused to the user, not just this name of a key.
pub fn is_forbidden(error: &RedisError) -> bool {
    is_refused(error) && error.detail().is_some_and(|detail| detail.contains("to run the"))
}

/// Whether the user may use the command, but not on a key of this name.
pub fn is_hidden(error: &RedisError) -> bool {
    is_refused(error) && !is_forbidden(error)
}

fn is_refused(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// A section of INFO. A field that is not there is empty.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub BTreeMap<String, String>);

impl Node {
    pub fn connect(client: &Client, address: ConnectionAddr) -> Result<Self, Failure> {
        let name = address.to_string();
        let connection = client.get_connection_with_timeout(CONNECT_TIMEOUT).map_err(|error| {
            if error.is_io_error() {
                let message = format!(
                    "cannot reach the server at {name}: {error}: is it running? -h and -p, -s, -u or DLOCK_URL \
                     name another one"
                );
                return Failure::new(Code::Unavailable, message);
            }
            error.into()
        })?;
        connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        connection.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut node = Self {
            name,
            address,
            connection,
        };
        let answer: RedisResult<Value> = cmd("PING").query(&mut node.connection);
        match answer {
            // A user may be allowed a few commands only. A missing password is another matter.
            Err(error) if error.code() != Some("NOPERM") => Err(error.into()),
            _ => Ok(node),
        }
    }

    pub fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        Ok(command.query(&mut self.connection)?)
    }

    /// Fails when the server does not have the module.
    pub fn require_module(&mut self) -> Result<(), Failure> {
        // Any other answer comes from the module, or from a server that keeps the user out.
        let answer: RedisResult<Value> = cmd("DLOCK.INFO").arg("").query(&mut self.connection);
        match answer.map_err(Error::from) {
            Err(missing @ Error::ModuleMissing) => Err(Failure::new(
                Code::Unavailable,
                format!("{}: {missing}", self.name),
            )),
            _ => Ok(()),
        }
    }

    /// A section of INFO.
    pub fn info(&mut self, section: &str) -> Result<Fields, Failure> {
        let text: String = self.query(cmd("INFO").arg(section))?;
        Ok(Fields::parse(&text))
    }
}

impl Fields {
    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(
            fields
                .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
                .collect(),
        )
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}
