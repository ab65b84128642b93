//! Waiting through an inbox: hand-overs compared with BLOCK, and what many waiters and dead processes cost.

mod crowd;
mod hand_over;
mod process;

use crate::error::Result;
use crate::results::table::Summary;
use crate::workloads::bench::Bench;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    bench.wait_budget.wait_for_quiet()?;
    hand_over::measure(bench, bench.rounds(10_000, 1_000), summary)?;
    crowd::measure(bench, bench.rounds(100_000, 10_000), summary)?;
    crowd::measure_dead(bench, summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::bench;

    #[test]
    fn inboxes_have_a_figure_for_each_target() -> Result<()> {
        let mut summary = Summary::default();
        hand_over::measure(&bench(), 50, &mut summary)?;
        crowd::measure(&bench(), 1_000, &mut summary)?;
        crowd::measure_dead(&bench(), &mut summary)?;
        let with_target = summary.figures.iter().filter(|figure| figure.met.is_some());
        assert_eq!(with_target.count(), 16);
        assert!(summary.figures.iter().all(|figure| figure.median > 0.0));
        Ok(())
    }
}
