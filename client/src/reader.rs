//! Readers of the inbox: one for each server, each with one DLOCK.GRANTS after the other.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock::{Backoff, BootInstant};
use crate::command::Milliseconds;
use crate::error::Error;
use crate::server::{Connection, Node, Server};

/// How long a call waits for answers. Less than the inbox lasts without one.
const BLOCKS_FOR: Duration = Duration::from_secs(2);
/// How long the inbox lasts after the last call.
const TTL: Duration = Duration::from_secs(5);
/// How long to wait for the reply to a call.
const READ_TIMEOUT: Duration = Duration::from_secs(4);

/// What a reader has to tell.
pub(crate) enum InboxNews {
    /// All servers have the inbox.
    Open,
    /// It cannot be created for now.
    Unreachable,
    /// The server rejects it for good, for lack of permission for instance.
    Refused(RedisError),
    /// A server does not reply to its reader, which goes on trying.
    Failed(RedisError),
    /// It is gone, or somebody else's.
    Ended,
    /// Answers, of a call that was first sent at this time.
    Answers {
        sent_at: BootInstant,
        waited: Duration,
        answers: Vec<Value>,
    },
}

/// The readers of one inbox.
#[derive(Clone)]
pub(crate) struct Readers {
    pub server: Server,
    pub inbox: [u8; 32],
    pub epoch: u64,
    pub response_timeout: Duration,
    pub news: UnboundedSender<(u64, InboxNews)>,
}

/// A reader and its place.
struct Reader {
    readers: Readers,
    connection: Connection,
    node: Node,
    cursor: u64,
}

impl Readers {
    /// Creates the inbox everywhere, then reads it until it ends.
    pub async fn run(self) {
        let mut backoff = Backoff::default();
        let readers = loop {
            // Requests that may have to wait are held back meanwhile.
            match timeout(self.response_timeout, self.create()).await {
                Ok(Ok(readers)) => break readers,
                Ok(Err(error)) if error.code() == Some("BUSYINBOX") => return self.tell(InboxNews::Ended),
                Ok(Err(error)) if is_final(&error) => return self.tell(InboxNews::Refused(error)),
                Ok(Err(_)) | Err(_) => self.tell(InboxNews::Unreachable),
            }
            sleep(backoff.pause()).await;
        };
        self.tell(InboxNews::Open);
        // Ended with this task.
        let mut reading = JoinSet::new();
        for reader in readers {
            reading.spawn(reader.run());
        }
        reading.join_next().await;
        self.tell(InboxNews::Ended);
    }

    async fn create(&self) -> RedisResult<Vec<Reader>> {
        let mut connection = self.connect().await?;
        let mut readers = Vec::new();
        for node in connection.primaries().await? {
            let mut reader = Reader {
                readers: self.clone(),
                connection: connection.clone(),
                node,
                cursor: 0,
            };
            reader.read(BootInstant::now()).await?;
            readers.push(reader);
        }
        Ok(readers)
    }

    async fn connect(&self) -> RedisResult<Connection> {
        self.server
            .connect_reader(self.response_timeout, READ_TIMEOUT)
            .await
    }

    fn tell(&self, news: InboxNews) {
        // The thread that is told has gone, and so will this.
        let _ = self.news.send((self.epoch, news));
    }
}

impl Reader {
    /// Reads until the inbox has ended, or must have ended because its server was away.
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut replied_at = BootInstant::now();
        // When the call was sent first, if it is repeated.
        let mut sent_at = replied_at;
        loop {
            match self.read(sent_at).await {
                Ok(()) => {
                    backoff = Backoff::default();
                    replied_at = BootInstant::now();
                    sent_at = replied_at;
                }
                Err(error) if has_ended(&error) || BootInstant::now() - replied_at > TTL => return,
                Err(error) => {
                    self.readers.tell(InboxNews::Failed(error.clone()));
                    sleep(backoff.pause()).await;
                    if crate::server::should_reconnect(&error)
                        && let Ok(connection) = self.readers.connect().await
                    {
                        self.connection = connection;
                    }
                }
            }
        }
    }

    /// One call. The same one is repeated until it has a reply.
    async fn read(&mut self, sent_at: BootInstant) -> RedisResult<()> {
        let reply = self.connection.query_node(&self.command(), &self.node).await?;
        let (cursor, Milliseconds(waited), answers) = FromRedisValue::from_redis_value(reply)?;
        self.cursor = cursor;
        self.readers.tell(InboxNews::Answers {
            sent_at,
            waited,
            answers,
        });
        Ok(())
    }

    fn command(&self) -> Cmd {
        let mut command = cmd("DLOCK.GRANTS");
        command.arg(&self.readers.inbox).arg(self.cursor);
        if self.cursor == 0 {
            command.arg("TTL").arg(TTL.as_millis() as u64);
        } else {
            command.arg("BLOCK").arg(BLOCKS_FOR.as_millis() as u64);
        }
        command
    }
}

/// Whether the server would say the same again.
fn is_final(error: &RedisError) -> bool {
    !error.is_io_error() && !Error::from(error.clone()).is_transient()
}

/// Whether the server says that the inbox is gone: it goes with the role of a primary, too.
fn has_ended(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOINBOX" | "BUSYINBOX" | "READONLY"))
}
