//! `dlock doctor`: collects facts about the servers, checks them, and reports findings.

mod checks;
mod collect;
mod facts;
mod finding;
mod permissions;
mod sentinels;

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

pub use self::facts::Facts;
use self::finding::{Finding, Level, Report};
use crate::args::DoctorArgs;
use crate::exit::{Code, Failure};
use crate::output::{BOLD, GREEN, RED, YELLOW, paint, stdout};
use crate::server::Target;

pub fn doctor(args: &DoctorArgs, target: &Target) -> Result<ExitCode, Failure> {
    let (mut reports, down_after_ms) = sentinels::check(target);
    let deployment = match facts(target, down_after_ms) {
        // What the Sentinels say of it is worth more than that there is no primary.
        Err(failure) if !reports.is_empty() => unavailable(target, failure)?,
        deployment => deployment?,
    };
    reports.extend(of_servers(&deployment, checks::check));
    print(args, &reports)
}

/// What is known about the servers of a deployment.
pub fn deployment(target: &Target) -> Result<Vec<Facts>, Failure> {
    facts(target, sentinels::check(target).1)
}

fn facts(target: &Target, down_after_ms: Option<i64>) -> Result<Vec<Facts>, Failure> {
    let mut servers = collect::all_servers(target)?;
    for facts in &mut servers {
        facts.down_after_ms = down_after_ms;
    }
    Ok(servers)
}

/// The servers of a quorum.
pub fn quorum(args: &DoctorArgs, targets: &[Target]) -> Result<ExitCode, Failure> {
    let mut servers = Vec::new();
    for target in targets {
        servers.extend(collect::all_servers(target).or_else(|failure| unavailable(target, failure))?);
    }
    let mut reports = vec![Report {
        server: "quorum".to_owned(),
        title: "quorum".to_owned(),
        findings: checks::quorum::together(&servers),
    }];
    reports.extend(of_servers(&servers, checks::quorum::check));
    print(args, &reports)
}

/// A finding like others, unless the request itself is wrong.
fn unavailable(target: &Target, failure: Failure) -> Result<Vec<Facts>, Failure> {
    match failure.code {
        Code::Unavailable => Ok(vec![Facts::unreachable(
            target.server_names().join(","),
            failure.message,
        )]),
        _ => Err(failure),
    }
}

fn of_servers(
    deployment: &[Facts],
    check: fn(&Facts, &[Facts]) -> Vec<Finding>,
) -> impl Iterator<Item = Report> {
    deployment.iter().map(move |facts| Report {
        server: facts.server.clone(),
        title: facts.title(),
        findings: check(facts, deployment),
    })
}

/// The exit code tells the worst finding.
fn print(args: &DoctorArgs, reports: &[Report]) -> Result<ExitCode, Failure> {
    let mut out = stdout();
    if args.json {
        writeln!(out, "{:#}", json(reports))?;
    } else {
        write(reports, &mut out)?;
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

fn write(reports: &[Report], out: &mut dyn Write) -> io::Result<()> {
    for report in reports {
        writeln!(out, "{}", paint(BOLD, &report.title))?;
        for finding in &report.findings {
            write_finding(finding, out)?;
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

fn write_finding(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let (mark, color) = match finding.level {
        Level::Ok => ("ok     ", GREEN),
        Level::Note => ("note   ", BOLD),
        Level::Warning => ("warning", YELLOW),
        Level::Problem => ("PROBLEM", RED),
    };
    let mark = paint(color, mark);
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
