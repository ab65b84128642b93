//! `dlock doctor`: facts are gathered, checked, and the findings told.

mod checks;
mod facts;
mod finding;
mod gather;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use self::facts::Facts;
use self::finding::{Finding, Level};
use crate::args::DoctorArgs;
use crate::exit::Failure;
use crate::server::Target;
use crate::text::{Colour, Paint};

pub fn doctor(args: &DoctorArgs, target: &Target) -> Result<ExitCode, Failure> {
    let deployment = gather::all(target)?;
    let findings: Vec<(&Facts, Vec<Finding>)> = deployment
        .iter()
        .map(|facts| (facts, checks::check(facts, &deployment)))
        .collect();
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        writeln!(out, "{:#}", json(&findings))?;
    } else {
        write(&findings, &mut out, Paint::for_output())?;
    }
    out.flush()?;
    Ok(match worst(&findings) {
        Level::Good | Level::Note => ExitCode::SUCCESS,
        Level::Warning => ExitCode::from(1),
        Level::Problem => ExitCode::from(2),
    })
}

fn worst(findings: &[(&Facts, Vec<Finding>)]) -> Level {
    let levels = findings
        .iter()
        .flat_map(|(_, findings)| findings)
        .map(|finding| finding.level);
    levels.max().unwrap_or(Level::Good)
}

fn write(findings: &[(&Facts, Vec<Finding>)], out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    for (facts, findings) in findings {
        let title = format!("{} ({}, {})", facts.server, facts.role(), facts.version_text());
        writeln!(out, "{}", paint.paint(Colour::Bold, &title))?;
        for finding in findings {
            let (mark, colour) = match finding.level {
                Level::Good => ("good   ", Colour::Green),
                Level::Note => ("note   ", Colour::Bold),
                Level::Warning => ("warning", Colour::Yellow),
                Level::Problem => ("PROBLEM", Colour::Red),
            };
            writeln!(
                out,
                "  {}  {}: {}",
                paint.paint(colour, mark),
                finding.check,
                finding.what
            )?;
            for (label, text) in [("means", finding.means), ("mend", finding.mend)] {
                if !text.is_empty() {
                    writeln!(out, "           {label}: {text}")?;
                }
            }
        }
    }
    let count = |level, what| {
        let all = findings.iter().flat_map(|(_, all)| all);
        match all.filter(|finding| finding.level == level).count() {
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        }
    };
    let problems = count(Level::Problem, "problem");
    writeln!(out, "{problems}, {}", count(Level::Warning, "warning"))
}

fn json(findings: &[(&Facts, Vec<Finding>)]) -> Value {
    let findings = findings
        .iter()
        .flat_map(|(facts, all)| all.iter().map(move |finding| (facts, finding)));
    findings
        .map(|(facts, finding)| {
            json!({
                "server": facts.server,
                "check": finding.check,
                "level": finding.level.name(),
                "what": finding.what,
                "means": finding.means,
                "mend": finding.mend,
            })
        })
        .collect()
}
