//! A million locks held at once: memory, snapshots, and latency while all leases expire.

mod resident;
mod sweep;

use crate::error::Result;
use crate::results::table::Summary;
use crate::workloads::bench::Bench;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let locks = bench.rounds(1_000_000, 100_000);
    resident::measure(bench, locks, summary)?;
    if locks > sweep::LOCKS_WITH_TARGET {
        sweep::measure(bench, sweep::LOCKS_WITH_TARGET, summary)?;
    }
    sweep::measure(bench, locks, summary)?;
    summary.note(
        "a client sends PING every 200 us while the leases expire; idle: the same client with nothing to expire",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::{bench, rows};

    #[test]
    fn million_locks_are_measured_held_and_expiring() -> Result<()> {
        let mut summary = Summary::default();
        resident::measure(&bench(), 3_000, &mut summary)?;
        sweep::measure(&bench(), 3_000, &mut summary)?;
        // The key name is part of both.
        let resident = rows(&summary, "3000 held, key names of 40 bytes", "snapshot per key");
        assert!(
            resident.iter().all(|row| (15.0..200.0).contains(&row.median)),
            "{resident:?}"
        );
        assert_eq!(resident.len(), 2);
        let metric = "all keys deleted after the last expiry";
        let deleted = rows(&summary, "3000 leases expire at once", metric);
        assert!(deleted[0].median > 0.0, "{deleted:?}");
        Ok(())
    }
}
