//! `dlock stats`

mod prometheus;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use serde_json::{Map, Value};

use crate::args::StatsArgs;
use crate::exit::Failure;
use crate::server::{Fields, Node, Target};

/// What one server counts.
pub struct Counted {
    pub server: String,
    /// The fields of INFO dlock, without their prefix.
    pub fields: Vec<(String, u64)>,
}

pub fn stats(args: &StatsArgs, target: &Target) -> Result<ExitCode, Failure> {
    let mut servers = Vec::new();
    for node in &mut target.primaries()? {
        servers.push(counted(node)?);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if args.prometheus {
        out.write_all(prometheus::exposition(&servers).as_bytes())?;
    } else if args.json {
        writeln!(out, "{:#}", json(&servers))?;
    } else {
        write(&servers, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Asks a server for INFO dlock.
pub fn counted(node: &mut Node) -> Result<Counted, Failure> {
    node.require_module()?;
    let fields = numbers(&node.info("dlock")?);
    Ok(Counted {
        server: node.name.clone(),
        fields,
    })
}

fn numbers(info: &Fields) -> Vec<(String, u64)> {
    let fields = info.0.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("dlock_")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    fields.collect()
}

fn write(servers: &[Counted], out: &mut dyn Write) -> io::Result<()> {
    for (n, Counted { server, fields }) in servers.iter().enumerate() {
        if servers.len() > 1 {
            writeln!(out, "{}{server}", if n > 0 { "\n" } else { "" })?;
        }
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in fields {
            writeln!(out, "{name:<width$}  {value}")?;
        }
    }
    Ok(())
}

fn json(servers: &[Counted]) -> Value {
    let object = |fields: &[(String, u64)]| -> Map<String, Value> {
        fields
            .iter()
            .map(|(name, value)| (name.clone(), (*value).into()))
            .collect()
    };
    let servers: Map<String, Value> = servers
        .iter()
        .map(|counted| (counted.server.clone(), object(&counted.fields).into()))
        .collect();
    servers.into()
}
