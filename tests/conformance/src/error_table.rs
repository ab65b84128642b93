//! The table in docs/client-authors.md that says what a client does after an error.

use crate::outcome::Outcome;

const PAGE: &str = include_str!("../../../docs/client-authors.md");
const HEADING: &str = "## Errors";

/// What a client does after a word.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The first word of an error, "no reply" or "every other word".
    pub word: String,
    /// The title of each column, and what its cell says: again, told, lost or never.
    pub reactions: Vec<(String, String)>,
}

/// A row for each word.
pub fn rows() -> Outcome<Vec<Row>> {
    parse(PAGE).map_err(|error| format!("docs/client-authors.md, {HEADING}: {error}"))
}

fn parse(page: &str) -> Outcome<Vec<Row>> {
    let (_, section) = page.split_once(HEADING).ok_or("there is no such section")?;
    let table = section.lines().skip_while(|line| !line.starts_with('|'));
    let mut lines = table.take_while(|line| line.starts_with('|')).map(cells);
    let titles = lines.next().ok_or("there is no table")?;
    // The line below the titles.
    lines.next();
    let mut rows = Vec::new();
    for cells in lines {
        rows.extend(rows_of(&titles, &cells)?);
    }
    match rows.is_empty() {
        true => Err("the table has no rows".into()),
        false => Ok(rows),
    }
}

fn rows_of(titles: &[&str], cells: &[&str]) -> Outcome<Vec<Row>> {
    if cells.len() != titles.len() {
        return Err(format!("a row has {} cells", cells.len()));
    }
    let reactions = titles.iter().zip(cells).skip(1);
    let reactions = reactions.map(|(title, cell)| ((*title).to_owned(), (*cell).to_owned()));
    let reactions: Vec<_> = reactions.collect();
    let row = |word: &str| Row {
        word: word.to_owned(),
        reactions: reactions.clone(),
    };
    Ok(cells[0].split(", ").map(row).collect())
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_the_page_is_parsed() {
        let rows = rows().expect("the page has the table");
        let reactions = |word: &str| {
            let row = rows
                .iter()
                .find(|row| row.word == word)
                .expect("it has this word");
            row.reactions
                .iter()
                .map(|(_, reaction)| reaction.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            reactions("no reply"),
            ["again", "again", "again", "again", "told"]
        );
        assert_eq!(reactions("STALE"), ["told", "told", "lost", "lost", "lost"]);
        assert_eq!(reactions("every other word"), ["told"; 5]);
        assert_eq!(rows[0].reactions[0].0, "ACQUIRE that waits");
    }

    #[test]
    fn page_without_a_whole_table_is_refused() {
        for (page, expected) in [
            ("# Page\n", "no such section"),
            ("## Errors\ntext\n", "no table"),
            ("## Errors\n| word | ACQUIRE |\n|---|---|\n", "no rows"),
            ("## Errors\n| word | ACQUIRE |\n|---|---|\n| BUSY |\n", "1 cells"),
        ] {
            let error = parse(page).expect_err(page);
            assert!(error.contains(expected), "{error}");
        }
    }
}
