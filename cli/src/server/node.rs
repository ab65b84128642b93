//! A connection to one server.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, InfoDict,
    RedisConnectionInfo, RedisError, RedisResult, Value, cmd, from_redis_value_ref,
};
use redis_dlock_client::Error;

use crate::exit::{Code, Failure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Node {
    /// `host:port`, or the path of the socket.
    pub name: String,
    pub(super) info: ConnectionInfo,
    pub connection: Connection,
}

/// Whether the user has no permission for the command at all. Only the text of the error tells that from a denied key.
pub fn is_command_denied(error: &RedisError) -> bool {
    is_permission_error(error) && error.detail().is_some_and(|detail| detail.contains("to run the"))
}

/// Whether the user has permission for the command, but not for this key.
pub fn is_key_denied(error: &RedisError) -> bool {
    is_permission_error(error) && !is_command_denied(error)
}

fn is_permission_error(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// Fields of INFO or of a similar reply. A missing field reads as an empty string.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub BTreeMap<String, String>);

/// The same connection to another port, and to another host if one is given.
pub(super) fn at(info: &ConnectionInfo, new_host: Option<String>, new_port: u16) -> ConnectionInfo {
    let mut addr = info.addr().clone();
    match &mut addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            if let Some(new_host) = new_host {
                *host = new_host;
            }
            *port = new_port;
        }
        _ => addr = ConnectionAddr::Tcp(new_host.unwrap_or_default(), new_port),
    }
    info.clone().set_addr(addr)
}

impl Node {
    pub fn connect(info: &ConnectionInfo) -> Result<Self, Failure> {
        let name = info.addr().to_string();
        // redis-rs would drop what the server says before it closes the connection.
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let connection = Client::open(info.clone().set_redis_settings(bare))
            .map_err(|error| Failure::usage(format!("invalid server address: {error}")))?
            .get_connection_with_timeout(CONNECT_TIMEOUT)
            .map_err(|error| connect_failure(info, error))?;
        connection.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        connection.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        let mut node = Self {
            name,
            info: info.clone(),
            connection,
        };
        node.log_in().map_err(|error| connect_failure(info, error))?;
        node.connection.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        node.connection.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(node)
    }

    fn log_in(&mut self) -> RedisResult<()> {
        let settings = self.info.redis_settings();
        if let Some(password) = settings.password() {
            let login = cmd("AUTH").arg(settings.username()).arg(password).take();
            login.exec(&mut self.connection).map_err(login_error)?;
        }
        if settings.db() != 0 {
            cmd("SELECT").arg(settings.db()).exec(&mut self.connection)?;
        }
        match cmd("PING").exec(&mut self.connection) {
            // The user may lack permission for PING. Other errors, such as a missing password, are fatal.
            Err(error) if !is_permission_error(&error) => Err(error),
            _ => Ok(()),
        }
    }

    pub fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        let reply = command.query(&mut self.connection);
        reply.map_err(|error| self.failure(error))
    }

    fn failure(&self, error: RedisError) -> Failure {
        if error.is_timeout() {
            let seconds = RESPONSE_TIMEOUT.as_secs();
            let message = format!(
                "{}: no reply within {seconds} s: the server may be blocked",
                self.name
            );
            return Failure::new(Code::Unavailable, message);
        }
        error.into()
    }

    /// Fails if the server does not have the module.
    pub fn require_module(&mut self) -> Result<(), Failure> {
        // Any other reply comes from the module, or means that permission is denied.
        let reply: RedisResult<Value> = cmd("DLOCK.INFO").arg("").query(&mut self.connection);
        match reply.map_err(Error::from) {
            Err(missing @ Error::ModuleMissing { .. }) => Err(Failure::new(
                Code::Unavailable,
                format!("{}: {missing}", self.name),
            )),
            _ => Ok(()),
        }
    }

    /// Reads sections of INFO.
    pub fn info(&mut self, sections: &[&str]) -> Result<Fields, Failure> {
        let text: String = self.query(cmd("INFO").arg(sections))?;
        Ok(Fields::parse(&text))
    }
}

/// The server rejects the user name and password with this error, and the connection with others of the same code.
fn login_error(error: RedisError) -> RedisError {
    match error.detail() {
        Some(detail) if error.code() == Some("ERR") && detail.contains("AUTH") => {
            (ErrorKind::AuthenticationFailed, "AUTH", detail.to_owned()).into()
        }
        _ => error,
    }
}

fn connect_failure(info: &ConnectionInfo, error: RedisError) -> Failure {
    const OTHER_SERVER: &str = "select another server with -h and -p, -s, -u or DLOCK_URL";
    let name = info.addr();
    let limit = |detail: &&str| detail.contains("max number of clients");
    let reason = if let Some(limit) = error.detail().filter(limit) {
        format!("{limit}: raise maxclients, or close connections")
    } else if !error.is_io_error() {
        return error.into();
    } else if error.is_timeout() {
        let seconds = CONNECT_TIMEOUT.as_secs();
        format!("no reply within {seconds} s: is it a server, and does it expect TLS? Or {OTHER_SERVER}")
    } else if matches!(name, ConnectionAddr::TcpTls { .. }) && !error.is_connection_refusal() {
        format!(
            "{error}: pass the certificate of its CA with --cacert FILE, and if it asks for one, pass a client \
             certificate with --cert FILE and --key FILE"
        )
    } else {
        format!("{error}: is the server running? Or {OTHER_SERVER}")
    };
    Failure::new(Code::Unavailable, format!("cannot connect to {name}: {reason}"))
}

impl Fields {
    pub fn parse(text: &str) -> Self {
        let info = InfoDict::new(text);
        let text = |(name, value): (&String, _)| Some((name.clone(), from_redis_value_ref(value).ok()?));
        Self(info.iter().filter_map(text).collect())
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A numeric field.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}
