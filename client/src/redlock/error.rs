use std::fmt;

use crate::connect::Address;
use crate::error::Error;

/// Too few of the servers agreed, and what the others said.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NoQuorum {
    /// So many servers had to agree.
    pub needed: usize,
    /// So many had agreed when it was certain that too few would.
    pub agreed: usize,
    /// Those that had refused or failed by then.
    pub failures: Vec<NodeFailure>,
}

/// What one of the servers said, or did not say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeFailure {
    /// The server.
    pub node: Address,
    /// Why it did not agree.
    pub error: Error,
}

impl NoQuorum {
    /// Whether some of the servers only failed for now, and none refused for good. Others that hold the lock refuse
    /// for now, too, but are no failure.
    pub(crate) fn is_transient(&self) -> bool {
        let errors = self.failures.iter().map(|failure| &failure.error);
        let mut others = errors.filter(|error| !matches!(error, Error::Busy)).peekable();
        others.peek().is_some() && others.all(Error::is_transient)
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} servers had to agree, but only {} did",
            self.needed, self.agreed
        )?;
        for (n, NodeFailure { node, error }) in self.failures.iter().enumerate() {
            let separator = if n == 0 { ": " } else { "; " };
            write!(f, "{separator}{node}: {error}")?;
        }
        Ok(())
    }
}
