//! Fills in the tables of the page beside the results, so that its figures are those of the run.
//!
//! A table is between `<!-- figures: WORKLOAD: CASE -->` or `<!-- targets: WORKLOAD -->` and `<!-- end -->`.

use crate::results::print::{columns, unique};
use crate::results::stats::number;
use crate::results::table::{Figure, Summary};

const END: &str = "<!-- end -->";

/// The page with the tables of this run. Tables of workloads that did not run stay as they are.
pub fn fill(page: &str, summary: &Summary) -> String {
    let mut filled = String::new();
    let mut is_replaced = false;
    for line in page.lines() {
        is_replaced &= line != END;
        if is_replaced {
            continue;
        }
        filled += line;
        filled += "\n";
        if let Some(table) = table(line, summary) {
            filled += &format!("\n{table}\n");
            is_replaced = true;
        }
    }
    filled
}

/// The table that belongs after this line, if its workload has run.
fn table(line: &str, summary: &Summary) -> Option<String> {
    let marker = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    let rows = if let Some(workload) = marker.strip_prefix("targets: ") {
        targets(&select(summary, |figure| {
            figure.workload == workload && figure.target.is_some()
        })?)
    } else {
        let (workload, case) = marker.strip_prefix("figures: ")?.split_once(": ")?;
        figures(&select(summary, |figure| {
            figure.workload == workload && figure.case == case
        })?)
    };
    let row = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
    let (head, body) = rows.split_first()?;
    let rule = format!("|---|{}\n", "---:|".repeat(head.len() - 1));
    Some(row(head) + &rule + &body.iter().map(row).collect::<String>())
}

/// `None` without any.
fn select(summary: &Summary, is_selected: impl Fn(&&Figure) -> bool) -> Option<Vec<&Figure>> {
    let figures: Vec<_> = summary.figures.iter().filter(is_selected).collect();
    (!figures.is_empty()).then_some(figures)
}

/// A line per implementation, a column per metric.
fn figures(figures: &[&Figure]) -> Vec<Vec<String>> {
    let implementations = unique(figures, |figure| &figure.implementation);
    let columns = columns(figures, &implementations);
    let names = std::iter::once("").chain(implementations).enumerate();
    let row = |(line, name): (usize, &str)| {
        let cells = columns.iter().map(|column| column[line].clone());
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    names.map(row).collect()
}

/// A line per metric: its figures in all cases, and the one that is farthest from the target.
fn targets(figures: &[&Figure]) -> Vec<Vec<String>> {
    let head = ["figure", "target", "measured", "met", "worst case"].map(Into::into);
    let metrics = unique(figures, |figure| &figure.metric).into_iter();
    let row = |metric: &str| {
        let mut cases: Vec<_> = figures.iter().filter(|figure| figure.metric == metric).collect();
        cases.sort_by(|one, other| one.median.total_cmp(&other.median));
        let (Some(least), Some(most)) = (cases.first(), cases.last()) else {
            return Vec::new();
        };
        let target = least.target.clone().unwrap_or_default();
        let worst = if target.starts_with('>') { least } else { most };
        let met = cases.iter().filter(|figure| figure.met == Some(true)).count();
        vec![
            metric.to_owned(),
            target,
            format!("{} to {}", number(least.median), number(most.median)),
            format!("{met} of {}", cases.len()),
            format!("{}, {}", worst.implementation, worst.case),
        ]
    };
    std::iter::once(head.into()).chain(metrics.map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::stats::Stats;

    #[test]
    fn page_with_tables_gets_the_figures_of_workloads_that_ran() {
        let mut summary = Summary::default();
        summary.begin("quorum");
        let mut add = |name: &str, wait| {
            let figure = Figure::new("wait", Stats::of([wait]))
                .ms()
                .of(name)
                .case("8 clients");
            summary.add(figure.at_most(2.0));
        };
        add("dlock", 1.0);
        add("other", 3.0);
        let page = "before\n<!-- figures: quorum: 8 clients -->\nold\n<!-- end -->\n\
                    <!-- targets: quorum -->\n<!-- end -->\n<!-- figures: cpu: x -->\nkept\n<!-- end -->\n";
        let expected = "before\n<!-- figures: quorum: 8 clients -->\n\n|  | wait, ms |\n|---|---:|\n\
                        | dlock | 1.00 |\n| other | 3.00 |\n\n<!-- end -->\n<!-- targets: quorum -->\n\n\
                        | figure | target | measured | met | worst case |\n|---|---:|---:|---:|---:|\n\
                        | wait | <= 2 | 1.00 to 3.00 | 1 of 2 | other, 8 clients |\n\n<!-- end -->\n\
                        <!-- figures: cpu: x -->\nkept\n<!-- end -->\n";
        assert_eq!(fill(page, &summary), expected);
        assert_eq!(fill(expected, &summary), expected);
    }
}
