//! Owners, and names that nobody else has.

use std::fmt;
use std::io::Write;
use std::process;
use std::sync::Arc;

use redis::{FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, ToSingleRedisArg, Value};

/// The owner of a lock: any string of 1 to 512 bytes.
///
/// An owner is neither a thread nor a connection. All who use the same owner share its locks: another acquisition by
/// the same owner is granted at once and counted. Concurrent tasks need owners of their own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<[u8]>);

impl Owner {
    /// A unique owner: `host:pid:random`.
    pub fn unique() -> Self {
        Self(ProcessName::new().name.into())
    }

    /// The bytes of the owner.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The name of a process, which no other process has.
#[derive(Debug)]
pub(crate) struct ProcessName {
    /// `host:pid:random`.
    name: Vec<u8>,
    /// The random part.
    pub random: [u8; 32],
}

impl ProcessName {
    pub fn new() -> Self {
        let (pid, random) = (process::id(), random_name());
        // An owner has at most 512 bytes.
        let host = rustix::system::uname();
        let host = host.nodename().to_bytes();
        let host = &host[..host.len().min(255)];
        Self {
            name: [host, format!(":{pid}:").as_bytes(), &random].concat(),
            random,
        }
    }

    /// The owner of one acquisition: `host:pid:random:number`.
    pub fn owner(&self, number: u64) -> Owner {
        let mut name = Vec::with_capacity(self.name.len() + 21);
        name.extend_from_slice(&self.name);
        // Nothing fails that writes to memory.
        let _ = write!(name, ":{number}");
        Owner(name.into())
    }
}

/// 128 random bits as 32 hexadecimal digits. Forked processes continue with the same random numbers; their pids make the
/// names unique.
pub(crate) fn random_name() -> [u8; 32] {
    name_of(rand::random(), process::id())
}

fn name_of(random: u128, pid: u32) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bits = random ^ u128::from(pid);
    std::array::from_fn(|n| DIGITS[(bits >> (4 * n)) as usize & 15])
}

impl<T: AsRef<[u8]>> From<T> for Owner {
    fn from(name: T) -> Self {
        Self(name.as_ref().into())
    }
}

impl From<&Self> for Owner {
    fn from(owner: &Self) -> Self {
        owner.clone()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:?})", String::from_utf8_lossy(&self.0))
    }
}

impl ToRedisArgs for Owner {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(&self.0);
    }
}

impl ToSingleRedisArg for Owner {}

impl FromRedisValue for Owner {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Vec::<u8>::from_redis_value(value).map(|name| Self(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_owner_names_host_and_pid() {
        let (one, other) = (Owner::unique(), Owner::unique());
        assert_ne!(one, other);
        let name = one.to_string();
        let parts: Vec<&str> = name.rsplitn(3, ':').collect();
        assert_eq!(parts[0].len(), 32);
        assert_eq!(parts[1], process::id().to_string());
        assert!(!parts[2].is_empty());
        assert!(one.as_bytes().len() <= 512);
    }

    #[test]
    fn random_names_of_forked_processes_differ() {
        let random = rand::random();
        assert_ne!(name_of(random, 4711), name_of(random, 4712));
        assert_eq!(name_of(random, 4711), name_of(random, 4711));
        assert_ne!(name_of(random, 4711), name_of(!random, 4711));
    }
}
