//! Reads INFO dlock.

use crate::exit::Failure;
use crate::server::{Fields, Node};

/// The counters of one server.
pub struct ServerStats {
    pub server: String,
    /// The numeric fields of INFO dlock, without their prefix.
    pub fields: Vec<(String, u64)>,
}

pub fn fetch(node: &mut Node) -> Result<ServerStats, Failure> {
    node.require_module()?;
    let fields = numeric_fields(&node.info("dlock")?);
    Ok(ServerStats {
        server: node.name.clone(),
        fields,
    })
}

fn numeric_fields(info: &Fields) -> Vec<(String, u64)> {
    let fields = info.0.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("dlock_")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    fields.collect()
}
