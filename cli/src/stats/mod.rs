//! `dlock stats`: the counters of INFO dlock.

mod counters;
mod prometheus;

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Map, Value};

pub use self::counters::{ServerStats, fetch};
use crate::args::StatsArgs;
use crate::exit::{Code, Failure, report_unreachable};
use crate::output::stdout;
use crate::server::Target;

pub fn stats(args: &StatsArgs, target: &Target) -> Result<ExitCode, Failure> {
    let (servers, failures) = fetch_all(target, args.prometheus)?;
    let mut out = stdout();
    if args.prometheus {
        out.write_all(prometheus::exposition(&servers).as_bytes())?;
    } else if args.json {
        writeln!(out, "{:#}", json(&servers))?;
    } else {
        write(&servers, &mut out)?;
    }
    out.flush()?;
    Ok(report_unreachable(&failures))
}

/// Reads all servers. For Prometheus, an unreachable server is a result; otherwise it is an error if no other is left.
fn fetch_all(target: &Target, prometheus: bool) -> Result<(Vec<ServerStats>, Vec<Failure>), Failure> {
    let (mut servers, mut failures) = (Vec::new(), Vec::new());
    let discovered = match target.discover_primaries() {
        Err(failure) if prometheus && failure.code == Code::Unavailable => {
            servers.extend(target.server_names().into_iter().map(ServerStats::down));
            return Ok((servers, vec![failure]));
        }
        discovered => discovered?,
    };
    for found in discovered {
        let stats = found.node.and_then(|mut node| fetch(&mut node));
        servers.push(stats.unwrap_or_else(|failure| {
            failures.push(failure);
            ServerStats::down(found.name)
        }));
    }
    match failures.first() {
        Some(failure) if !prometheus && servers.iter().all(|stats| stats.is_down) => Err(failure.clone()),
        _ => Ok((servers, failures)),
    }
}

fn write(servers: &[ServerStats], out: &mut dyn Write) -> io::Result<()> {
    for (n, ServerStats { server, fields, .. }) in servers.iter().filter(|stats| !stats.is_down).enumerate() {
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
        .map(|stats| {
            let fields = (!stats.is_down).then(|| object(&stats.fields));
            (stats.server.clone(), fields.into())
        })
        .collect();
    servers.into()
}
