//! Very many locks held at once: what they take in memory and on disk, and what clients notice when they
//! all end.

mod kept;
mod sweep;

use crate::Result;
use crate::results::table::Summary;
use crate::works::Bench;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let locks = bench.rounds(1_000_000, 100_000);
    kept::measure(bench, locks, summary)?;
    if locks > sweep::PROMISED {
        sweep::measure(bench, sweep::PROMISED, summary)?;
    }
    sweep::measure(bench, locks, summary)?;
    summary.note(
        "a client sends PING every 200 us while the leases end; idle: the same client, nothing to sweep",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::works::testing::{bench, rows};

    #[test]
    fn locks_are_kept_saved_loaded_and_swept() -> Result<()> {
        let mut summary = Summary::default();
        kept::measure(&bench(), 3_000, &mut summary)?;
        sweep::measure(&bench(), 3_000, &mut summary)?;
        // The name is part of both.
        let kept = rows(&summary, "3000 held, names of 40 bytes", "in the snapshot");
        assert!(
            kept.iter().all(|row| (15.0..200.0).contains(&row.median)),
            "{kept:?}"
        );
        assert_eq!(kept.len(), 2);
        let gone = rows(
            &summary,
            "3000 leases end at once",
            "all keys gone after the last lease ended",
        );
        assert!(gone[0].median > 0.0, "{gone:?}");
        Ok(())
    }
}
