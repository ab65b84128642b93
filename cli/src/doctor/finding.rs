//! The result of a check.

/// The findings that are not fine: `check: case | level | what it means for locks | how to fix it`.
const TABLE: &str = include_str!("findings.txt");

/// The findings about one server or Sentinel, or about a quorum as a whole.
pub struct Report {
    /// `host:port`
    pub server: String,
    pub title: String,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// The name of the check.
    pub check: &'static str,
    /// What was found.
    pub message: String,
    /// What that means for locks. Empty if all is well.
    pub impact: &'static str,
    /// How to fix it. Empty if there is nothing to do.
    pub remedy: &'static str,
}

/// In order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    /// Worth knowing, but not wrong.
    Note,
    /// Locks can be lost or delayed under conditions that are likely to occur.
    Warning,
    /// No locks are granted, or locks do not protect.
    Problem,
}

impl Level {
    const ALL: [Self; 4] = [Self::Ok, Self::Note, Self::Warning, Self::Problem];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            check,
            message: message.into(),
            impact: "",
            remedy: "",
        }
    }

    /// One of the table, by its check or its check and case. A test makes sure that it has all of them.
    pub fn bad(id: &'static str, message: impl Into<String>) -> Self {
        let row = TABLE.lines().find_map(|line| {
            let (_, row) = line.split_once(" | ").filter(|(other, _)| *other == id)?;
            let (level, texts) = row.split_once(" | ")?;
            let level = Level::ALL.into_iter().find(|other| other.name() == level)?;
            Some((level, texts.split_once(" | ").unwrap_or((texts, ""))))
        });
        let (level, (impact, remedy)) = row.unwrap_or((Level::Problem, ("", "")));
        Self {
            level,
            check: id.split_once(": ").map_or(id, |(check, _)| check),
            message: message.into(),
            impact,
            remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_exactly_the_findings_of_the_checks() {
        let sources = [
            include_str!("checks/mod.rs"),
            include_str!("checks/cluster.rs"),
            include_str!("checks/durability.rs"),
            include_str!("checks/grace.rs"),
            include_str!("checks/quorum.rs"),
            include_str!("checks/replication.rs"),
            include_str!("checks/server.rs"),
            include_str!("sentinels.rs"),
        ];
        for line in TABLE.lines() {
            let [id, level, rest @ ..] = &line.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert_eq!(rest.len(), if *level == "note" { 1 } else { 2 }, "{line}");
            let quoted = format!("\"{id}\"");
            assert!(sources.iter().any(|source| source.contains(&quoted)), "{line}");
        }
        let used = sources.iter().flat_map(|source| source.split("bad(").skip(1));
        for id in used.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next()) {
            assert!(TABLE.contains(&format!("{id} | ")), "{id}");
        }
    }
}
