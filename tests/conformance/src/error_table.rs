//! The table in docs/client-authors.md that says what a client does after an error.

use crate::outcome::Outcome;

const PAGE: &str = include_str!("../../../docs/client-authors.md");
const HEADING: &str = "## Errors";
const COLUMNS: [Column; 5] = [
    Column::Waiting,
    Column::Trying,
    Column::Extend,
    Column::Release,
    Column::Guard,
];

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// ACQUIRE that waits.
    Waiting,
    /// ACQUIRE that does not.
    Trying,
    Extend,
    Release,
    Guard,
}

/// What a client does then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It sends the request again.
    Again,
    /// The caller is told.
    Told,
    /// The lock is lost.
    Lost,
    /// The server does not reply so.
    Never,
}

/// What a client does after a word.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The first word of an error, "no reply" or "every other word".
    pub word: String,
    pub reactions: Vec<(Column, Reaction)>,
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Waiting => "ACQUIRE that waits",
            Self::Trying => "ACQUIRE that does not",
            Self::Extend => "EXTEND",
            Self::Release => "RELEASE",
            Self::Guard => "GUARD",
        }
    }
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
    let expected: Vec<&str> = [&["first word"][..], &COLUMNS.map(Column::title)].concat();
    if titles != expected {
        return Err(format!("the columns are {titles:?}, not {expected:?}"));
    }
    // The line below the titles.
    lines.next();
    let mut rows = Vec::new();
    for cells in lines {
        rows.extend(rows_of(&cells)?);
    }
    match rows.is_empty() {
        true => Err("the table has no rows".into()),
        false => Ok(rows),
    }
}

fn rows_of(cells: &[&str]) -> Outcome<Vec<Row>> {
    let Some((words, reactions)) = cells.split_first().filter(|_| cells.len() == COLUMNS.len() + 1) else {
        return Err(format!("a row has {} cells", cells.len()));
    };
    let reactions = reactions.iter().map(|reaction| match *reaction {
        "again" => Ok(Reaction::Again),
        "told" => Ok(Reaction::Told),
        "lost" => Ok(Reaction::Lost),
        "never" => Ok(Reaction::Never),
        other => Err(format!("`{other}` is neither again, told, lost nor never")),
    });
    let reactions: Vec<Reaction> = reactions.collect::<Outcome<_>>()?;
    let row = |word: &str| Row {
        word: word.to_owned(),
        reactions: COLUMNS.into_iter().zip(reactions.iter().copied()).collect(),
    };
    Ok(words.split(", ").map(row).collect())
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLES: &str = "## Errors\n\n| first word | ACQUIRE that waits | ACQUIRE that does not | EXTEND | RELEASE \
                          | GUARD |\n|---|---|---|---|---|---|\n";

    #[test]
    fn table_of_the_page_is_parsed() {
        let rows = rows().expect("the page has the table");
        let reactions = |word: &str| {
            let row = rows.iter().find(|row| row.word == word);
            row.map(|row| {
                row.reactions
                    .iter()
                    .map(|(_, reaction)| *reaction)
                    .collect::<Vec<_>>()
            })
        };
        use Reaction::{Again, Lost, Told};
        assert_eq!(
            reactions("no reply"),
            Some(vec![Again, Again, Again, Again, Told])
        );
        assert_eq!(reactions("STALE"), Some(vec![Told, Told, Lost, Lost, Lost]));
        assert_eq!(reactions("every other word"), Some(vec![Told; 5]));
    }

    #[test]
    fn table_that_is_no_table_of_reactions_is_refused() {
        for (page, expected) in [
            ("# Page\n", "no such section"),
            ("## Errors\ntext\n", "no table"),
            ("## Errors\n| a | b |\n", "the columns are"),
            (TITLES, "no rows"),
            (&format!("{TITLES}| BUSY | again |\n"), "2 cells"),
            (
                &format!("{TITLES}| BUSY | again | told | maybe | again | told |\n"),
                "`maybe`",
            ),
        ] {
            let error = parse(page).expect_err(page);
            assert!(error.contains(expected), "{error}");
        }
    }
}
