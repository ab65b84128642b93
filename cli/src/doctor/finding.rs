//! The result of a check.

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

    pub fn new(
        level: Level,
        check: &'static str,
        message: impl Into<String>,
        impact: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self {
            level,
            check,
            message: message.into(),
            impact,
            remedy,
        }
    }

    pub fn problem(
        check: &'static str,
        message: impl Into<String>,
        impact: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self::new(Level::Problem, check, message, impact, remedy)
    }

    pub fn warning(
        check: &'static str,
        message: impl Into<String>,
        impact: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self::new(Level::Warning, check, message, impact, remedy)
    }

    pub fn note(check: &'static str, message: impl Into<String>, impact: &'static str) -> Self {
        Self::new(Level::Note, check, message, impact, "")
    }
}
