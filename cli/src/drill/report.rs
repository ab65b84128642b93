//! The verdict, as text and as JSON.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use dlock_drill::outcome::Phase;
use serde_json::{Value, json};

use super::advice::{Advice, Cause};
use super::done::Drill;
use crate::duration;
use crate::exit::Failure;
use crate::output::{BOLD, GREEN, RED, YELLOW, paint, stdout};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Nothing was violated, but that says little.
    Inconclusive,
    Violated,
}

pub struct Report<'a> {
    drill: &'a Drill,
    phases: &'a [Phase],
    verdict: Verdict,
    advice: Vec<(usize, Advice)>,
}

impl<'a> Report<'a> {
    pub fn of(drill: &'a Drill, phases: &'a [Phase]) -> Self {
        let advice = phases.iter().enumerate();
        let advice = advice.flat_map(|(n, phase)| {
            let advice = drill.advice(phase).into_iter();
            advice.map(move |advice| (n, advice))
        });
        let has_failed = drill.faults.iter().any(|fault| fault.failure.is_some());
        let verdict = if phases.iter().any(|phase| phase.violations().next().is_some()) {
            Verdict::Violated
        } else if has_failed || drill.interrupted.is_some() || !phases.iter().all(|phase| phase.grants_again)
        {
            Verdict::Inconclusive
        } else {
            Verdict::Ok
        };
        Self {
            drill,
            phases,
            verdict,
            advice: advice.collect(),
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        match self.verdict {
            Verdict::Ok => ExitCode::SUCCESS,
            Verdict::Inconclusive => ExitCode::from(1),
            Verdict::Violated => ExitCode::from(2),
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
        writeln!(out, "{}", self.summary())
    }

    fn write_phase(&self, n: usize, phase: &Phase, out: &mut dyn Write) -> io::Result<()> {
        let title = match n.checked_sub(1).and_then(|fault| self.drill.faults.get(fault)) {
            None => "Before any fault".to_owned(),
            Some(fault) => {
                let took = duration::format(fault.took);
                let failed = fault.failure.iter().map(|why| format!(", FAILED: {why}"));
                format!(
                    "After `{}` ({took}{}), seen as {}",
                    fault.command,
                    failed.collect::<String>(),
                    self.event(phase)
                )
            }
        };
        writeln!(out, "{}", paint(BOLD, &title))?;
        let pause = duration::format(Duration::from_micros(phase.longest_pause));
        writeln!(
            out,
            "  {} acquisitions, overlaps {}, fences that did not rise {}, locks lost {}, waiters lost {} \
             (unanswered {}), passed {}",
            phase.acquisitions,
            phase.overlaps.len(),
            phase.fences.len(),
            phase.lost_locks.len(),
            phase.lost_waiters.len(),
            phase.unanswered_waiters,
            phase.queue_jumps.len(),
        )?;
        let end = if phase.grants_again {
            ""
        } else {
            "; some lock was not granted again"
        };
        writeln!(out, "  longest pause without grants {pause}{end}")?;
        for (_, advice) in self.advice.iter().filter(|(of, _)| *of == n) {
            writeln!(out, "  {}", paint(YELLOW, &advice.finding))?;
            writeln!(out, "    {}", advice.remedy)?;
        }
        for violation in phase.violations().take(1) {
            writeln!(out, "  first: {}", violation.what)?;
        }
        Ok(())
    }

    fn event(&self, phase: &Phase) -> &'static str {
        match self.drill.event(phase) {
            Cause::None => "no restart and no failover",
            Cause::Restart => "a restart",
            Cause::Failover => "a failover",
            Cause::TwoPrimaries => "two primaries at a time",
        }
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

    fn summary(&self) -> String {
        let count: usize = self.phases.iter().map(|phase| phase.violations().count()).sum();
        match self.verdict {
            Verdict::Ok => paint(GREEN, "ok: no violation was found, which is no proof"),
            Verdict::Violated => paint(RED, &format!("VIOLATED: {count} violations")),
            Verdict::Inconclusive => {
                let reason = if self.drill.interrupted.is_some() {
                    "it was interrupted"
                } else if self.drill.faults.iter().any(|fault| fault.failure.is_some()) {
                    "a command of --fault failed"
                } else {
                    "some lock was not granted again"
                };
                paint(
                    YELLOW,
                    &format!("inconclusive: no violation was found, but {reason}"),
                )
            }
        }
    }

    fn json(&self) -> Value {
        let sum = |count: fn(&Phase) -> usize| self.phases.iter().map(count).sum::<usize>();
        let pause = self.phases.iter().map(|phase| phase.longest_pause).max();
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Violated => "violated",
        };
        json!({
            "verdict": verdict,
            "duration_ms": (self.drill.end - self.drill.start) / 1_000,
            "contenders": self.drill.plan.contenders(),
            "lease_ms": self.drill.plan.lease_ms,
            "acquisitions": sum(|phase| phase.acquisitions),
            "overlaps": sum(|phase| phase.overlaps.len()),
            "fences_not_rising": sum(|phase| phase.fences.len()),
            "locks_lost": sum(|phase| phase.lost_locks.len()),
            "waiters_lost": sum(|phase| phase.lost_waiters.len()),
            "waiters_unanswered": sum(|phase| phase.unanswered_waiters),
            "waiters_passed": sum(|phase| phase.queue_jumps.len()),
            "longest_pause_ms": pause.unwrap_or_default() / 1_000,
            "phases": self.phases.iter().enumerate().map(|(n, phase)| self.phase_json(n, phase)).collect::<Vec<_>>(),
            "not_tried": self.not_tried(),
        })
    }

    fn phase_json(&self, n: usize, phase: &Phase) -> Value {
        let fault = n.checked_sub(1).and_then(|fault| self.drill.faults.get(fault));
        let findings = self.advice.iter().filter(|(of, _)| *of == n);
        let findings = findings.map(|(_, advice)| {
            json!({
                "finding": advice.finding,
                "cause": advice.cause,
                "settings": advice.settings,
                "remedy": advice.remedy,
            })
        });
        json!({
            "fault": fault.map(|fault| fault.command.as_str()),
            "failure": fault.and_then(|fault| fault.failure.as_deref()),
            "took_ms": fault.map(|fault| fault.took.as_millis() as u64),
            "seen_as": self.drill.event(phase).name(),
            "acquisitions": phase.acquisitions,
            "overlaps": phase.overlaps.len(),
            "fences_not_rising": phase.fences.len(),
            "locks_lost": phase.lost_locks.len(),
            "waiters_lost": phase.lost_waiters.len(),
            "waiters_unanswered": phase.unanswered_waiters,
            "waiters_passed": phase.queue_jumps.len(),
            "longest_pause_ms": phase.longest_pause / 1_000,
            "grants_again": phase.grants_again,
            "findings": findings.collect::<Vec<_>>(),
        })
    }
}
