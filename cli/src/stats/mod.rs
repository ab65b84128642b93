//! `dlock stats`: the counters of INFO dlock.

mod counters;
mod prometheus;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use serde_json::{Map, Value};

pub use self::counters::{ServerStats, fetch};
use crate::args::StatsArgs;
use crate::exit::Failure;
use crate::server::Target;

pub fn stats(args: &StatsArgs, target: &Target) -> Result<ExitCode, Failure> {
    let mut servers = Vec::new();
    for node in &mut target.primaries()? {
        servers.push(fetch(node)?);
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

fn write(servers: &[ServerStats], out: &mut dyn Write) -> io::Result<()> {
    for (n, ServerStats { server, fields }) in servers.iter().enumerate() {
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

fn json(servers: &[ServerStats]) -> Value {
    let object = |fields: &[(String, u64)]| -> Map<String, Value> {
        fields
            .iter()
            .map(|(name, value)| (name.clone(), (*value).into()))
            .collect()
    };
    let servers: Map<String, Value> = servers
        .iter()
        .map(|stats| (stats.server.clone(), object(&stats.fields).into()))
        .collect();
    servers.into()
}
