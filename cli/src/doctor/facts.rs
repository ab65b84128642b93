//! What is known about a server.

use std::time::Duration;

use crate::server::Fields;
use crate::text::module_version_text;

/// Facts that the user has no permission to read are empty.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `host:port`
    pub server: String,
    /// Why nothing else is known.
    pub unreachable: Option<String>,
    /// INFO everything
    pub info: Fields,
    /// CONFIG GET *
    pub config: Fields,
    /// CLUSTER INFO
    pub cluster: Fields,
    /// Nodes that CLUSTER NODES reports as failed.
    pub failed_nodes: Vec<String>,
    /// The version in MODULE LIST: 100 * (100 * major + minor) + patch.
    pub module_version: Option<u64>,
    /// After which silence the Sentinels of the URL take a primary for down.
    pub down_after_ms: Option<i64>,
    /// How far the server's wall clock is ahead of this machine's.
    pub clock_ahead_ms: Option<i64>,
    /// The longest remaining lease of a holder.
    pub longest_lease: Duration,
    /// DLOCK commands that the user has no permission for.
    pub denied_commands: Vec<&'static str>,
    /// Other commands that the user has no permission for, whose results are missing here.
    pub denied_queries: Vec<&'static str>,
    /// The number of locks that the user has no permission to read.
    pub denied_locks: usize,
}

impl Facts {
    pub fn unreachable(server: String, reason: String) -> Self {
        Self {
            server,
            unreachable: Some(reason),
            ..Self::default()
        }
    }

    pub fn title(&self) -> String {
        if self.unreachable.is_some() {
            return self.server.clone();
        }
        let role = if self.is_replica() { "replica" } else { "primary" };
        format!("{} ({role}, {})", self.server, self.version_text())
    }

    pub fn is_replica(&self) -> bool {
        self.info.get("role") == "slave"
    }

    pub fn has_module(&self) -> bool {
        !self.info.get("dlock_locks").is_empty()
    }

    pub fn is_cluster(&self) -> bool {
        self.info.get("cluster_enabled") == "1"
    }

    /// Whether the user has permission for CONFIG GET.
    pub fn has_config(&self) -> bool {
        !self.config.get("appendonly").is_empty()
    }

    /// A numeric setting.
    pub fn setting(&self, name: &str) -> Option<i64> {
        self.config.get(name).parse().ok()
    }

    /// Whether a setting is `yes`.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.config.get(name) == "yes"
    }

    /// How many replicas have a grant before anybody is told of it.
    pub fn min_sync_replicas(&self) -> u64 {
        let setting = self.setting("dlock.min-sync-replicas");
        setting.and_then(|n| n.try_into().ok()).unwrap_or(0)
    }

    pub fn replicas(&self) -> u64 {
        self.info.number("connected_slaves").unwrap_or(0)
    }

    pub fn is_valkey(&self) -> bool {
        !self.info.get("valkey_version").is_empty()
    }

    fn version(&self) -> &str {
        self.info.get(match self.is_valkey() {
            true => "valkey_version",
            false => "redis_version",
        })
    }

    /// The first two numbers of the version.
    pub fn version_numbers(&self) -> Option<(u64, u64)> {
        let mut numbers = self.version().split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Redis 8.4 and later: CLUSTER MIGRATION runs with any module, tested or not.
    pub fn has_cluster_migration(&self) -> bool {
        !self.is_valkey() && self.version_numbers() >= Some((8, 4))
    }

    pub fn version_text(&self) -> String {
        let product = if self.is_valkey() { "Valkey" } else { "Redis" };
        match self.version() {
            "" => format!("{product}, unknown version"),
            version => format!("{product} {version}"),
        }
    }

    pub fn module_version_text(&self) -> Option<String> {
        self.module_version.map(module_version_text)
    }
}
