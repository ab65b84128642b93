/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// What was checked.
    pub check: &'static str,
    /// What is the case.
    pub what: String,
    /// What that means for locks; empty when it is good.
    pub means: &'static str,
    /// What to do; empty when there is nothing to do.
    pub mend: &'static str,
}

/// How bad it is, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Good,
    /// Worth knowing.
    Note,
    /// Locks may be lost or late in some case that is not rare enough.
    Warning,
    /// No locks, or locks that do not protect.
    Problem,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    pub fn good(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            level: Level::Good,
            check,
            what: what.into(),
            means: "",
            mend: "",
        }
    }

    pub fn bad(
        level: Level,
        check: &'static str,
        what: impl Into<String>,
        means: &'static str,
        mend: &'static str,
    ) -> Self {
        Self {
            level,
            check,
            what: what.into(),
            means,
            mend,
        }
    }
}
