//! `dlock doctor`: collects facts about the servers, checks them, and reports findings.

mod checks;
mod collect;
mod facts;
mod finding;
mod permissions;
mod sentinels;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use self::finding::{Finding, Level};
use crate::args::DoctorArgs;
use crate::exit::Failure;
use crate::output::{Color, Painter};
use crate::server::Target;

/// The findings about one server or Sentinel.
struct Report {
    /// `host:port`
    server: String,
    title: String,
    findings: Vec<Finding>,
}

pub fn doctor(args: &DoctorArgs, target: &Target) -> Result<ExitCode, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    let sentinels = if args.can_remove {
        Vec::new()
    } else {
        sentinels::check(target)
    };
    for (server, findings) in sentinels {
        let title = format!("{server} (Sentinel)");
        reports.push(Report {
            server,
            title,
            findings,
        });
    }
    let check = if args.can_remove {
        checks::can_remove
    } else {
        checks::check
    };
    let deployment = collect::all_servers(target)?;
    reports.extend(deployment.iter().map(|facts| Report {
        server: facts.server.clone(),
        title: facts.title(),
        findings: check(facts, &deployment),
    }));
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        writeln!(out, "{:#}", json(&reports))?;
    } else {
        write(&reports, &mut out, Painter::for_stdout())?;
    }
    out.flush()?;
    let levels = reports.iter().flat_map(|report| &report.findings);
    let worst = levels.map(|finding| finding.level).max();
    Ok(match worst.unwrap_or(Level::Ok) {
        Level::Ok | Level::Note => ExitCode::SUCCESS,
        Level::Warning => ExitCode::from(1),
        Level::Problem => ExitCode::from(2),
    })
}

fn write(reports: &[Report], out: &mut dyn Write, painter: Painter) -> io::Result<()> {
    for report in reports {
        writeln!(out, "{}", painter.paint(Color::Bold, &report.title))?;
        for finding in &report.findings {
            write_finding(finding, out, painter)?;
        }
    }
    let count = |level, noun| {
        let findings = reports.iter().flat_map(|report| &report.findings);
        match findings.filter(|finding| finding.level == level).count() {
            1 => format!("1 {noun}"),
            n => format!("{n} {noun}s"),
        }
    };
    let problems = count(Level::Problem, "problem");
    writeln!(out, "{problems}, {}", count(Level::Warning, "warning"))
}

fn write_finding(finding: &Finding, out: &mut dyn Write, painter: Painter) -> io::Result<()> {
    let (mark, color) = match finding.level {
        Level::Ok => ("ok     ", Color::Green),
        Level::Note => ("note   ", Color::Bold),
        Level::Warning => ("warning", Color::Yellow),
        Level::Problem => ("PROBLEM", Color::Red),
    };
    let mark = painter.paint(color, mark);
    writeln!(out, "  {mark}  {}: {}", finding.check, finding.message)?;
    for (label, text) in [("impact", finding.impact), ("remedy", finding.remedy)] {
        if !text.is_empty() {
            writeln!(out, "           {label}: {text}")?;
        }
    }
    Ok(())
}

fn json(reports: &[Report]) -> Value {
    let findings = reports
        .iter()
        .flat_map(|report| report.findings.iter().map(move |finding| (report, finding)));
    findings
        .map(|(report, finding)| {
            json!({
                "server": report.server,
                "check": finding.check,
                "level": finding.level.name(),
                "message": finding.message,
                "impact": finding.impact,
                "remedy": finding.remedy,
            })
        })
        .collect()
}
