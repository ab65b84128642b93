use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// How a driver is started: the kit appends the address of its server.
#[derive(Clone, Debug)]
pub struct Launch {
    pub program: PathBuf,
    /// Instead of that of the scenario's server.
    address: Option<String>,
    /// Of the address: settings of the client.
    query: String,
    /// The other drivers of a scenario, if they are others than its first one.
    others: Option<Box<Self>>,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(String, OsString)>,
}

impl Launch {
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            address: None,
            query: String::new(),
            others: None,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    pub fn with(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub fn in_environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub fn at(mut self, address: String) -> Self {
        self.address = Some(address);
        self
    }

    pub fn with_query(mut self, query: &str) -> Self {
        self.query = format!("?{query}");
        self
    }

    pub fn beside(mut self, others: Self) -> Self {
        self.others = Some(Box::new(others));
        self
    }

    /// For a driver other than the first one of a scenario.
    pub fn other(&self) -> &Self {
        self.others.as_deref().unwrap_or(self)
    }

    pub fn command(&self, address: &str) -> Command {
        let mut command = Command::new(&self.program);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        let address = self.address.as_deref().unwrap_or(address);
        command
            .args(&self.arguments)
            .arg(format!("{address}{}", self.query))
            .envs(environment);
        command
    }
}
