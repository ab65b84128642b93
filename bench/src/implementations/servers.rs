//! What the clients of all implementations connect to.

use super::etcd::server::Etcd;
use crate::error::Result;
use crate::server::Server;

pub struct Servers {
    pub server: Server,
    /// Four independent servers, for quorum locks.
    pub(super) others: Vec<Server>,
    pub(super) etcd: Option<Etcd>,
}

impl Servers {
    /// `etcd`: whether its lock is measured, if it is installed.
    pub fn start(etcd: bool) -> Result<Self> {
        Ok(Self {
            others: (0..4).map(|_| Server::start()).collect::<Result<_>>()?,
            etcd: if etcd { Etcd::start()? } else { None },
            ..Self::single()?
        })
    }

    /// Without those that only quorum locks and etcd need.
    pub fn single() -> Result<Self> {
        let server = Server::start()?;
        Ok(Self {
            server,
            others: Vec::new(),
            etcd: None,
        })
    }

    pub fn has_etcd(&self) -> bool {
        self.etcd.is_some()
    }
}
