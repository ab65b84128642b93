//! The verdict, as text and as JSON.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use dlock_drill::outcome::Phase;
use serde_json::{Value, json};

use super::advice::{Advice, Cause};
use super::done::Drill;
use super::fault::Fault;
use crate::duration;
use crate::exit::Failure;
use crate::output::{BOLD, GREEN, RED, YELLOW, paint, stdout};

enum Verdict {
    Ok,
    /// Nothing was violated, but that says little: why.
    Inconclusive(&'static str),
    /// So many times.
    Violated(usize),
}

pub struct Report<'a> {
    drill: &'a Drill,
    phases: &'a [Phase],
    verdict: Verdict,
    advice: Vec<Vec<Advice>>,
}

impl<'a> Report<'a> {
    pub fn of(drill: &'a Drill, phases: &'a [Phase]) -> Self {
        let violations = phases.iter().flat_map(Phase::violations).count();
        let verdict = if violations > 0 {
            Verdict::Violated(violations)
        } else if drill.interrupted.is_some() {
            Verdict::Inconclusive("it was interrupted")
        } else if drill.faults.iter().any(|fault| fault.failure.is_some()) {
            Verdict::Inconclusive("a command of --fault failed")
        } else if !phases.iter().all(|phase| phase.grants_again) {
            Verdict::Inconclusive("some lock was not granted again")
        } else {
            Verdict::Ok
        };
        Self {
            drill,
            phases,
            verdict,
            advice: phases.iter().map(|phase| drill.advice(phase)).collect(),
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        match self.verdict {
            Verdict::Ok => ExitCode::SUCCESS,
            Verdict::Inconclusive(_) => ExitCode::from(1),
            Verdict::Violated(_) => ExitCode::from(2),
        }
    }

    pub fn print(&self, as_json: bool) -> Result<(), Failure> {
        let mut out = stdout();
        match as_json {
            true => writeln!(out, "{:#}", self.json())?,
            false => self.write(&mut out)?,
        }
        Ok(out.flush()?)
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let length = duration::format(Duration::from_micros(self.drill.end - self.drill.start));
        let contenders = self.drill.plan.contenders();
        let lease = duration::format_ms(self.drill.plan.lease_ms);
        let title = format!("{contenders} contenders for {length}, leases of up to {lease}");
        writeln!(out, "{}", paint(BOLD, &title))?;
        for (n, phase) in self.phases.iter().enumerate() {
            self.write_phase(n, phase, out)?;
        }
        writeln!(out, "{}", paint(BOLD, "Not tried"))?;
        for what in self.not_tried() {
            writeln!(out, "  {what}")?;
        }
        let summary = match self.verdict {
            Verdict::Ok => paint(GREEN, "ok: no violation was found, which is no proof"),
            Verdict::Violated(count) => paint(RED, &format!("VIOLATED: {count} violations")),
            Verdict::Inconclusive(reason) => paint(
                YELLOW,
                &format!("inconclusive: no violation was found, but {reason}"),
            ),
        };
        writeln!(out, "{summary}")
    }

    fn write_phase(&self, n: usize, phase: &Phase, out: &mut dyn Write) -> io::Result<()> {
        let title = match self.fault(n) {
            None => "Before any fault".to_owned(),
            Some(fault) => {
                let failed = fault.failure.iter().map(|why| format!(", FAILED: {why}"));
                format!(
                    "After `{}` ({}{}), seen as: {}",
                    fault.command,
                    duration::format(fault.took),
                    failed.collect::<String>(),
                    self.drill.event(phase).name()
                )
            }
        };
        writeln!(out, "{}", paint(BOLD, &title))?;
        let counts = phase.counts().map(|(name, count)| format!("{name} {count}"));
        writeln!(out, "  {}", counts.join(", ").replace('_', " "))?;
        let pause = duration::format(Duration::from_micros(phase.longest_pause));
        let end = if phase.grants_again {
            ""
        } else {
            "; some lock was not granted again"
        };
        writeln!(out, "  longest pause without grants {pause}{end}")?;
        for advice in &self.advice[n] {
            writeln!(out, "  {}", paint(YELLOW, &advice.finding))?;
            writeln!(out, "    {}", advice.remedy)?;
        }
        for violation in phase.violations().take(1) {
            writeln!(out, "  first: {}", violation.what)?;
        }
        Ok(())
    }

    /// The fault before a phase.
    fn fault(&self, phase: usize) -> Option<&Fault> {
        self.drill.faults.get(phase.checked_sub(1)?)
    }

    /// What contenders have not met, and what no drill tries.
    fn not_tried(&self) -> Vec<&'static str> {
        let events: Vec<Cause> = self.phases.iter().map(|phase| self.drill.event(phase)).collect();
        let kinds = [
            (Cause::Restart, "a crash and restart of a server"),
            (Cause::Failover, "a failover"),
            (
                Cause::TwoPrimaries,
                "an old primary that goes on, as in a network partition",
            ),
        ];
        let unmet = kinds.into_iter().filter(|(kind, _)| !events.contains(kind));
        let always = [
            "longer leases, more locks, more load",
            "the loss of power, of a disk, or of what it had confirmed",
            "clocks that are set back",
            "clients that are paused past their leases",
        ];
        unmet.map(|(_, text)| text).chain(always).collect()
    }

    fn json(&self) -> Value {
        let mut report = json!({
            "verdict": match self.verdict {
                Verdict::Ok => "ok",
                Verdict::Inconclusive(_) => "inconclusive",
                Verdict::Violated(_) => "violated",
            },
            "duration_ms": (self.drill.end - self.drill.start) / 1_000,
            "contenders": self.drill.plan.contenders(),
            "lease_ms": self.drill.plan.lease_ms,
        });
        add_counts(&mut report, self.phases);
        let phases = self.phases.iter().enumerate();
        report["phases"] = phases.map(|(n, phase)| self.phase_json(n, phase)).collect();
        report["not_tried"] = self.not_tried().into();
        report
    }

    fn phase_json(&self, n: usize, phase: &Phase) -> Value {
        let fault = self.fault(n);
        let findings = self.advice[n].iter().map(|advice| {
            json!({
                "finding": advice.finding,
                "cause": advice.cause.name(),
                "settings": advice.settings,
                "remedy": advice.remedy,
            })
        });
        let mut report = json!({
            "fault": fault.map(|fault| fault.command.as_str()),
            "failure": fault.and_then(|fault| fault.failure.as_deref()),
            "took_ms": fault.map(|fault| fault.took.as_millis() as u64),
            "seen_as": self.drill.event(phase).name(),
            "grants_again": phase.grants_again,
            "findings": findings.collect::<Vec<_>>(),
        });
        add_counts(&mut report, std::slice::from_ref(phase));
        report
    }
}

/// The sums of all phases, and the longest pause in any.
fn add_counts(report: &mut Value, phases: &[Phase]) {
    for (name, count) in phases.iter().flat_map(Phase::counts) {
        let before = report[name].as_u64().unwrap_or(0);
        report[name] = (before + count as u64).into();
    }
    let pause = phases.iter().map(|phase| phase.longest_pause).max();
    report["longest_pause_ms"] = (pause.unwrap_or_default() / 1_000).into();
}
