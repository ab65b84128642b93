use std::time::Duration;

use crate::server::Fields;

/// What is known of a server. Whatever the user may not ask for is empty.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `host:port`
    pub server: String,
    /// Why nothing else is known.
    pub out_of_reach: Option<String>,
    /// INFO everything
    pub info: Fields,
    /// CONFIG GET *
    pub settings: Fields,
    /// CLUSTER INFO
    pub cluster: Fields,
    /// The version that MODULE LIST tells, 100 * (100 * major + minor) + patch.
    pub module_version: Option<u64>,
    /// How far the server's wall clock is ahead of this machine's.
    pub clock_ahead_ms: Option<i64>,
    /// The longest lease that remains for a holder.
    pub longest_lease: Duration,
    /// The commands of the module that this user may not use.
    pub forbidden: Vec<&'static str>,
    /// The other commands that it may not use, so that what they would tell is not known.
    pub unasked: Vec<&'static str>,
}

impl Facts {
    pub fn role(&self) -> &'static str {
        if self.is_replica() { "replica" } else { "primary" }
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

    /// Whether the settings could be asked for.
    pub fn knows_settings(&self) -> bool {
        !self.settings.get("appendonly").is_empty()
    }

    /// A setting that is a number.
    pub fn setting(&self, name: &str) -> Option<i64> {
        self.settings.get(name).parse().ok()
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.settings.get(name) == "yes"
    }

    pub fn replicas(&self) -> u64 {
        self.info.number("connected_slaves").unwrap_or(0)
    }

    pub fn is_valkey(&self) -> bool {
        !self.info.get("valkey_version").is_empty()
    }

    fn version(&self) -> &str {
        let version = if self.is_valkey() {
            "valkey_version"
        } else {
            "redis_version"
        };
        self.info.get(version)
    }

    /// The first number of the version.
    pub fn major_version(&self) -> Option<u64> {
        self.version().split('.').next()?.parse().ok()
    }

    pub fn version_text(&self) -> String {
        let product = if self.is_valkey() { "Valkey" } else { "Redis" };
        format!(
            "{product} {}",
            if self.version().is_empty() {
                "?"
            } else {
                self.version()
            }
        )
    }

    pub fn module_version_text(&self) -> Option<String> {
        let version = self.module_version?;
        Some(format!(
            "{}.{}.{}",
            version / 10_000,
            version / 100 % 100,
            version % 100
        ))
    }
}
